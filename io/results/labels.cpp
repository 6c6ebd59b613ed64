#include "io/results/labels.hpp"

#include <fcntl.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace millrace {
namespace {

constexpr auto sync_every = std::chrono::seconds(5);

/// Before each slab, in the byte order of the machine that runs.
struct SlabHead {
  std::uint32_t rows = 0, bytes = 0, split = 0, check = 0;
};

std::string_view view_of(const std::vector<char>& bytes) { return {bytes.data(), bytes.size()}; }

/// Also of the numbers before it: a slab must not pass for one of another height.
std::uint32_t check_of(const SlabHead& head, std::string_view packed) {
  return xxh32(packed) ^ (head.rows * 2654435761U) ^ (head.split * 40503U);
}

std::vector<char> pack(std::span<const std::uint8_t> labels) {
  uLongf size = compressBound(labels.size());
  std::vector<char> packed(size);
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size, labels.data(), labels.size(), Z_BEST_SPEED) != Z_OK)
    throw std::bad_alloc();
  packed.resize(size);
  return packed;
}

}  // namespace

LabelFile::LabelFile(const std::string& folder, const std::string& name, const std::string& key, int rows,
                     std::int64_t row_labels, const FileSystem& files)
    : files_(files), rows_(rows), row_labels_(row_labels), file_(folder + "/" + name, O_RDWR | O_CREAT, files) {
  recover("millrace labels 2 " + xxh3_64_hex(key) + " " + std::to_string(rows) + " " + std::to_string(row_labels) +
          "\n");
}

void LabelFile::recover(const std::string& head) {
  std::string begun(head.size(), '\0');
  if (file_.read_at(begun, 0) != head.size() || begun != head) {
    file_.truncate(0);
    file_.write_all(head);
    end_ = static_cast<std::int64_t>(head.size());
    return;
  }
  const std::int64_t size = file_.size();
  end_ = static_cast<std::int64_t>(head.size());
  std::vector<char> packed;
  while (true) {
    SlabHead slab;
    const std::span<char> bytes(reinterpret_cast<char*>(&slab), sizeof(slab));
    if (file_.read_at(bytes, end_) != sizeof(slab)) break;
    const std::int64_t begin = end_ + static_cast<std::int64_t>(sizeof(slab));
    const bool fits =
        slab.rows > 0 && slab.rows <= static_cast<std::uint32_t>(rows_ - finished_rows()) && begin + slab.bytes <= size;
    if (!fits) break;
    packed.resize(slab.bytes);
    if (file_.read_at(packed, begin) != packed.size() || check_of(slab, view_of(packed)) != slab.check) break;
    split_ = split_ || slab.split != 0;
    slabs_.push_back({begin, slab.bytes, finished_rows(), static_cast<int>(slab.rows)});
    end_ = begin + slab.bytes;
  }
  file_.truncate(end_);
  if (::lseek(file_.descriptor(), 0, SEEK_END) < 0) throw StorageError("read", file_.path(), errno);
}

int LabelFile::finished_rows() const { return slabs_.empty() ? 0 : slabs_.back().first + slabs_.back().rows; }

void LabelFile::append(std::span<const std::uint8_t> labels, bool split) {
  const auto count = static_cast<std::int64_t>(labels.size());
  if (count == 0 || count % row_labels_ != 0 || count / row_labels_ > rows_ - finished_rows())
    throw std::logic_error("labels that are no whole rows, or more rows than the item has");
  const std::vector<char> packed = pack(labels);
  SlabHead head{static_cast<std::uint32_t>(count / row_labels_), static_cast<std::uint32_t>(packed.size()),
                split ? 1U : 0U, 0};
  head.check = check_of(head, view_of(packed));
  split_ = split_ || split;
  // One write, so that a kill leaves a torn tail and never a gap.
  std::string record(reinterpret_cast<const char*>(&head), sizeof(head));
  record += view_of(packed);
  file_.write_all(record);
  slabs_.push_back(
      {end_ + static_cast<std::int64_t>(sizeof(head)), head.bytes, finished_rows(), static_cast<int>(head.rows)});
  end_ += static_cast<std::int64_t>(record.size());
  const auto now = std::chrono::steady_clock::now();
  if (now - synced_ < sync_every) return;
  file_.sync_data();
  synced_ = now;
}

void LabelFile::read(const Take& take) const {
  std::vector<char> packed;
  std::vector<std::uint8_t> labels;
  for (const Slab& slab : slabs_) {
    packed.resize(slab.bytes);
    labels.resize(static_cast<std::size_t>(slab.rows) * static_cast<std::size_t>(row_labels_));
    uLongf size = labels.size();
    if (file_.read_at(packed, slab.offset) != packed.size() ||
        uncompress(labels.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()) != Z_OK ||
        size != labels.size())
      throw StorageError("read", file_.path(), EIO);
    take(slab.first, labels);
  }
}

void LabelFile::remove() {
  file_.close();
  remove_file(file_.path(), files_);
}

}  // namespace millrace
