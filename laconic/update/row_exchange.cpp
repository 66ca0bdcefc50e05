#include "laconic/update/row_exchange.hpp"

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"

namespace laconic {

// Chunk i * members + j of an all-to-all goes from i to j. Those between others have no room here.
RowExchange::RowExchange(World& world, RowExchangeSpec spec)
    : world_(world), spec_(std::move(spec)) {
  const std::size_t members = world.dp_group().size(), self = index(world.dp_member());
  const std::size_t item = bytes_of(spec_.dtype);
  LACONIC_ASSERT(spec_.sent.size() == members && spec_.received.size() == members,
                 "counts of other members");
  to_.resize(members);
  from_.resize(members);
  std::vector<std::uint64_t> offsets = {0};
  for (std::size_t i = 0; i < members; ++i)
    for (std::size_t j = 0; j < members; ++j) {
      if (i == self) to_[j] = offsets.back() * item;
      if (j == self) from_[i] = offsets.back() * item;
      const bool is_mine = i == self || j == self;
      const std::uint64_t elements = i == self ? spec_.sent[j] : spec_.received[i];
      offsets.push_back(offsets.back() + (is_mine ? elements : 0));
    }
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(offsets.back() * item);
  if (members == 1) return;
  const CollectiveSpec collective{.traffic = Traffic::embedding_rows,
                                  .unit = spec_.unit,
                                  .kind = CollectiveKind::all_to_all,
                                  .group = world.dp_group(),
                                  .dtype = spec_.dtype,
                                  .offsets = std::move(offsets),
                                  .columns = spec_.columns,
                                  .up = spec_.codec,
                                  .seed = spec_.seed};
  collective_ = std::make_unique<Collective>(world.engine(), collective);
}

RowExchange::~RowExchange() {
  if (operation_ != nullptr) world_.progress_thread().drop(operation_);
}

void RowExchange::post(std::uint64_t step, DeadlineKey key) {
  if (collective_ == nullptr) return;
  collective_->begin(step);
  operation_ = collective_->operation(buffer_.get(), key, false, {}, spec_.number);
  world_.progress_thread().start(operation_);
}

bool RowExchange::has_arrived() const {
  return operation_ == nullptr || world_.progress_thread().has_ended(operation_);
}

void RowExchange::wait() {
  if (operation_ == nullptr) return;
  world_.progress_thread().wait(operation_);
  operation_.reset();
  collective_->commit();
}

}  // namespace laconic
