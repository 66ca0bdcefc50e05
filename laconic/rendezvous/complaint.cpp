#include "laconic/rendezvous/complaint.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace laconic {

namespace {

// By then it is there, since it exists; one that cannot be read is none.
constexpr std::chrono::milliseconds kTimeToRead{1000};

std::optional<Complaint> parse(ByteView bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Complaint complaint;
  const char* const end = text.data() + text.size();
  const auto about = std::from_chars(text.data(), end, complaint.about);
  if (about.ec != std::errc() || about.ptr == end) return std::nullopt;
  complaint.why.assign(about.ptr + 1, end);
  return complaint;
}

}  // namespace

std::string Complaints::key_of(Rank rank) const {
  return fmt::format("laconic/gave_up/{}/{}/{}", meeting_.run_id, meeting_.attempt, rank);
}

void Complaints::tell(const Complaint& mine) {
  const std::string text = fmt::format("{} {}", mine.about, mine.why);
  try {
    store_.set(key_of(meeting_.rank), as_bytes(std::span<const char>(text.data(), text.size())));
  } catch (const std::exception&) {
  }
}

std::optional<Complaint> Complaints::of(Rank rank) {
  try {
    if (!store_.exists(key_of(rank))) return std::nullopt;
    return parse(store_.get(key_of(rank), in(kTimeToRead)));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Complaint Complaints::cause_of(Complaint complaint) {
  for (int i = 0; i < meeting_.size; ++i) {  // two may complain of each other
    auto behind = of(complaint.about);
    if (!behind || behind->about == meeting_.rank) break;
    complaint = std::move(*behind);
  }
  return complaint;
}

}  // namespace laconic
