#include "laconic/report/tensorboard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <filesystem>
#include <system_error>

#include "laconic/base/clock.hpp"
#include "laconic/base/crc32c.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/host_name.hpp"

namespace laconic {

namespace {

// A protobuf field starts with its number and how its end is found.
enum class Wire : std::uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(Bytes& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) put(out, static_cast<std::uint8_t>(value | 0x80));
  put(out, static_cast<std::uint8_t>(value));
}

void put_key(Bytes& out, std::uint64_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<std::uint64_t>(wire));
}

void put_bytes(Bytes& out, std::uint64_t field, ByteView bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void put_text(Bytes& out, std::uint64_t field, std::string_view text) {
  put_bytes(out, field, std::as_bytes(std::span(text)));
}

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
namespace event {
constexpr std::uint64_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary {
constexpr std::uint64_t kValue = 1, kTag = 1, kSimpleValue = 2;
}
namespace session_log {
constexpr std::uint64_t kStatus = 1, kStart = 1;
}

Bytes event_at(double unix_seconds, std::int64_t step) {
  Bytes out;
  put_key(out, event::kWallTime, Wire::fixed64);
  put(out, unix_seconds);
  if (step != 0) {  // protobuf leaves zeros out
    put_key(out, event::kStep, Wire::varint);
    put_varint(out, static_cast<std::uint64_t>(step));
  }
  return out;
}

std::string new_event_path(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw SystemError(folder, "create", error.value());
  return fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder,
                     static_cast<std::int64_t>(unix_seconds()), host_name(), ::getpid());
}

}  // namespace

Bytes tensorboard_record(ByteView event) {
  Bytes out;
  put(out, static_cast<std::uint64_t>(event.size()));
  put(out, masked_crc32c(out));
  out.insert(out.end(), event.begin(), event.end());
  put(out, masked_crc32c(event));
  return out;
}

Bytes version_event(double unix_seconds) {
  Bytes out = event_at(unix_seconds, 0);
  put_text(out, event::kFileVersion, "brain.Event:2");
  return out;
}

Bytes restart_event(double unix_seconds, std::int64_t step) {
  Bytes log;
  put_key(log, session_log::kStatus, Wire::varint);
  put_varint(log, session_log::kStart);
  Bytes out = event_at(unix_seconds, step);
  put_bytes(out, event::kSessionLog, log);
  return out;
}

Bytes scalars_event(double unix_seconds, std::int64_t step, std::span<const Scalar> scalars) {
  Bytes values;
  for (const Scalar& scalar : scalars) {
    Bytes value;
    put_text(value, summary::kTag, scalar.tag);
    put_key(value, summary::kSimpleValue, Wire::fixed32);
    put(value, static_cast<float>(scalar.value));
    put_bytes(values, summary::kValue, value);
  }
  Bytes out = event_at(unix_seconds, step);
  put_bytes(out, event::kSummary, values);
  return out;
}

TensorboardWriter::TensorboardWriter(const std::string& folder,
                                     std::optional<std::int64_t> resumed_step)
    : file_(new_event_path(folder)) {
  file_.write(tensorboard_record(version_event(unix_seconds())));
  if (resumed_step) file_.write(tensorboard_record(restart_event(unix_seconds(), *resumed_step)));
}

void TensorboardWriter::write(std::int64_t step, std::span<const Scalar> scalars) {
  file_.write(tensorboard_record(scalars_event(unix_seconds(), step, scalars)));
}

}  // namespace laconic
