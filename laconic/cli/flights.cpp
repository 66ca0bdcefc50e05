#include "laconic/cli/flights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "laconic/base/clock.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/rendezvous/socket.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

constexpr double kPatienceSeconds = 3;  // for the records of other ranks

std::string key_of(Rank rank) {
  return fmt::format("flight/{}", rank);
}

template <class Act>
void try_to(const Act& act) {
  try {
    act();
  } catch (const std::exception&) {  // then it must go without
  }
}

}  // namespace

Flights::Flights(World& world, const std::string& run_folder, Store* store)
    : world_(world),
      folder_(run_folder.empty() ? "" : run_folder + "/flight"),
      store_(store),
      since_(fs::file_time_type::clock::now()) {}

std::string Flights::explain(const std::string& error) {
  const Flight mine = flight_of(error);
  leave(mine);
  const std::vector<Flight> flights = collect(mine);
  const std::string text = verdict(flights, world_.size());
  const auto writer = std::find_if(flights.begin(), flights.end(),
                                   [](const Flight& flight) { return !flight.is_cause; });
  if (writer->rank != mine.rank) return error;
  const std::string told = fmt::format("{}\n{}", error, text.substr(0, text.find('\n')));
  if (folder_.empty()) return told;
  try_to([&] { write_atomically(folder_ + "/verdict.txt", text); });
  return fmt::format("{}\n(the records of {} ranks are in {})", told, flights.size(), folder_);
}

void Flights::leave_cause(const std::string& error) {
  Flight mine = flight_of(error);
  mine.is_cause = true;
  leave(mine);
}

std::string Flights::file_of(Rank rank) const {
  return fmt::format("{}/rank-{}.json", folder_, rank);
}

Flight Flights::flight_of(const std::string& error) const {
  return {.rank = world_.rank(),
          .host = host_name(),
          .doing = world_.activity(),
          .error = error,
          .records = world_.engine().recorder().records(),
          .taken_ns = world_.engine().recorder().now_ns()};
}

void Flights::leave(const Flight& flight) const {
  const std::string json = to_json(flight);
  if (!folder_.empty())
    try_to([&] {
      fs::create_directories(folder_);
      write_atomically(file_of(flight.rank), json);
    });
  if (store_ != nullptr)
    try_to(
        [&] { store_->set(key_of(flight.rank), as_bytes(std::span(json.data(), json.size()))); });
}

std::optional<Flight> Flights::find(Rank rank) const {
  std::optional<Flight> found;
  try_to([&] {
    const std::string path = file_of(rank);
    if (!folder_.empty() && fs::exists(path) && fs::last_write_time(path) >= since_)
      found = parse_flight(MappedFile(path).text());
  });
  if (found || store_ == nullptr) return found;
  try_to([&] {
    if (!store_->exists(key_of(rank))) return;
    const Bytes json = store_->get(key_of(rank), in(std::chrono::seconds(1)));
    found = parse_flight({reinterpret_cast<const char*>(json.data()), json.size()});
  });
  return found;
}

// All that can be had within some seconds: the others fail within moments of each other, too.
std::vector<Flight> Flights::collect(const Flight& mine) const {
  std::map<Rank, Flight> found = {{mine.rank, mine}};
  const Stopwatch watch;
  while (static_cast<int>(found.size()) < world_.size() && watch.seconds() < kPatienceSeconds) {
    for (Rank r = 0; r < world_.size(); ++r)
      if (!found.contains(r))
        if (std::optional<Flight> flight = find(r)) found.emplace(r, std::move(*flight));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::vector<Flight> flights;
  for (auto& [rank, flight] : found) flights.push_back(std::move(flight));
  return flights;
}

}  // namespace laconic
