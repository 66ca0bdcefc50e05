// report/tensorboard.hpp — scalars for TensorBoard.
//
// An event file is a row of TFRecords, each a protobuf `Event`; the few fields
// we need are encoded by hand. TensorBoard joins all event files of a folder,
// so a resumed run writes a new one beside the old; what the old one has from
// the resumed step on is then declared void (a SessionLog START).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/file/append_file.hpp"

namespace laconic {

struct Scalar {
  std::string tag;  // "loss", "time_metrics/step(s)": see docs/reports.md
  double value = 0;
};

// Length, its check sum, the event, its check sum.
Bytes tensorboard_record(ByteView event);

// Each one `Event`, not yet a record.
Bytes version_event(double unix_seconds);
Bytes restart_event(double unix_seconds, std::int64_t step);
Bytes scalars_event(double unix_seconds, std::int64_t step, std::span<const Scalar> scalars);

class TensorboardWriter {
 public:
  // Makes the folder. `resumed_step` is the first step this run will write, if it is not new.
  // Throws SystemError, here and below.
  explicit TensorboardWriter(const std::string& folder,
                             std::optional<std::int64_t> resumed_step = std::nullopt);

  // One record, which is on its way to the disk when this returns.
  void write(std::int64_t step, std::span<const Scalar> scalars);
  void write(std::int64_t step, std::initializer_list<Scalar> scalars) {
    write(step, std::span<const Scalar>(scalars.begin(), scalars.size()));
  }
  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace laconic
