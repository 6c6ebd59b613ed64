#include "run/reader.hpp"

#include <filesystem>
#include <system_error>

#include "io/files/read_file.hpp"
#include "stages/pixel_cache.hpp"

namespace millrace {
namespace {

/// Source::measure() leaves size and time of a missing file at 0.
bool was_there_when_planned(const Item& item) { return item.mtime_ns != 0; }

}  // namespace

std::int64_t Reader::file_bytes(const Frame& frame) const {
  if (was_there_when_planned(frame.item)) return frame.item.bytes;  // read() fails for another size
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(open_path(input_root_, frame.item), unknown);
  return unknown ? 0 : static_cast<std::int64_t>(bytes);
}

void Reader::read(Frame& frame) {
  // input.source=memory: `decode` takes the pixels from the cache, so the file is not needed.
  if (cache_ != nullptr) {
    if (const auto known = cache_->find(frame.item.path)) {
      frame.info = known->info;
      return;
    }
  }
  FileExpectations expected;
  expected.max_bytes = max_file_bytes_;
  if (was_there_when_planned(frame.item)) {
    expected.bytes = frame.item.bytes;
    expected.mtime_ns = frame.item.mtime_ns;
  }
  frame.file = read_file(open_path(input_root_, frame.item), expected);
  read_bytes_ += static_cast<std::int64_t>(frame.file.size);
  frame.info = probe(frame.file.span(), limits_.at(static_cast<std::size_t>(frame.item.view)));
}

}  // namespace millrace
