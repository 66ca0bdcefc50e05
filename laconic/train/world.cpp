#include "laconic/train/world.hpp"

#include <numeric>

#include "laconic/base/error.hpp"
#include "laconic/collective/run.hpp"

namespace laconic {

namespace {

constexpr std::uint32_t kUnit = 1;  // of control traffic; 0 is the start-up's
constexpr char kDecided = '=', kRefused = '!', kFailed = '?';  // what an answer begins with

Bytes bytes_of(std::string_view text) {
  const ByteView view = as_bytes(std::span(text.data(), text.size()));
  return {view.begin(), view.end()};
}

std::string text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

World::World(const Mesh& mesh, Courier& courier)
    : courier_(&courier), rank_(courier.engine().rank()), mesh_(mesh) {
  everybody_.resize(static_cast<std::size_t>(laconic::size(mesh)));
  std::iota(everybody_.begin(), everybody_.end(), 0);
  coord_ = coord_of(mesh, rank_);
  dp_group_ = group_of(mesh, rank_, Axis::dp);
  pp_group_ = group_of(mesh, rank_, Axis::pp);
}

Group World::tied_pair() const {
  const Rank first = pp_group_.front(), last = pp_group_.back();
  if (rank_ != first && rank_ != last) return {};
  return first == last ? Group{first} : Group{first, last};
}

Group World::tied_group() const {
  Group group;
  for (const Rank rank : everybody_) {
    Coord coord = coord_of(mesh_, rank);
    const bool is_holder = coord.pp == 0 || coord.pp == mesh_.pp - 1;
    coord.dp = coord_.dp;
    coord.pp = coord_.pp;
    if (is_holder && coord == coord_) group.push_back(rank);
  }
  const bool is_member = coord_.pp == 0 || coord_.pp == mesh_.pp - 1;
  return is_member ? group : Group();
}

std::vector<Bytes> World::gather(ByteView mine) {
  if (is_alone()) return {Bytes(mine.begin(), mine.end())};
  return gather_all(engine(), everybody_, Traffic::control, kUnit, exchanges_++, mine);
}

Bytes World::from_first(ByteView mine) {
  if (is_alone()) return {mine.begin(), mine.end()};
  return broadcast(engine(), everybody_, Traffic::control, kUnit, exchanges_++, mine);
}

std::string World::first_decides(const std::function<std::string()>& decide) {
  if (!is_first()) {
    const std::string answer = text_of(from_first({}));
    if (answer.starts_with(kRefused)) throw ConfigError(answer.substr(1));
    if (answer.starts_with(kFailed)) throw PeerLost(0, "rank 0 failed: " + answer.substr(1));
    return answer.substr(1);
  }
  // This rank is about to go: whoever waits must know before.
  const auto tell = [&](char kind, const std::exception& error) {
    from_first(bytes_of(kind + std::string(error.what())));
    if (!is_alone()) engine().flush();
  };
  std::string answer;
  try {
    answer = decide();
  } catch (const PeerLost&) {  // nobody listens any more
    throw;
  } catch (const Timeout&) {
    throw;
  } catch (const ConfigError& error) {
    tell(kRefused, error);
    throw;
  } catch (const FileError& error) {
    tell(kRefused, error);
    throw;
  } catch (const std::exception& error) {
    tell(kFailed, error);
    throw;
  }
  from_first(bytes_of(kDecided + answer));
  return answer;
}

}  // namespace laconic
