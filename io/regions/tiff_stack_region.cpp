#include "io/regions/tiff_stack_region.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/regions/nifti_header.hpp"
#include "io/regions/tiff_region.hpp"
#include "io/regions/tiff_stack.hpp"

namespace millrace {
namespace {

/// Calls `act`. Its errors get the number of the page.
template <class Act>
auto naming(int page, const Act& act) {
  try {
    return act();
  } catch (const PictureError& error) {
    throw PictureError(error.reason(), "page " + std::to_string(page) + ": " + error.what());
  }
}

std::string counted(int count, const std::string& name) {
  return std::to_string(count) + " " + name + (count == 1 ? "" : "s");
}

/// The pages of an item.
struct Pages {
  std::shared_ptr<TiffFile> file;
  std::vector<int> numbers;           ///< [slice][plane of channels]
  std::vector<std::uint64_t> places;  ///< of directories in the file, by number of page
  RegionOptions options{};            ///< for a page, whose samples are channels
  int planes = 1;                     ///< with the channels of a slice
  int channels() const { return planes * options.channels; }
};

/// A page, which has the size and type of the first one, and needs no more memory.
std::shared_ptr<RegionSource> open_page(const Pages& pages, std::size_t index, const RegionSource* first) {
  const int number = pages.numbers[index];
  return naming(number, [&] {
    pages.file->go_to(pages.places[static_cast<std::size_t>(number)]);
    auto page = open_tiff(pages.file, pages.options, std::array<double, 3>{});
    if (first == nullptr) return page;
    if (page->info().size != first->info().size || page->info().type != first->info().type)
      throw PictureError(Reason::corrupt_data,
                         "it differs in size or type from page " + std::to_string(pages.numbers[0]));
    if (page->memory_bytes() > first->memory_bytes())
      throw PictureError(Reason::unsupported_format, "its tiles or strips are larger than those of page " +
                                                         std::to_string(pages.numbers[0]) +
                                                         "; write the file again with parts of one size");
    return page;
  });
}

/// Puts the channels of a line of a page to their places among all channels of a line.
template <class From, class To>
void put(const std::vector<std::uint8_t>& from, int samples, To* to, int channels) {
  const std::uint8_t* const end = from.data() + from.size();
  for (const std::uint8_t* at = from.data(); at < end; to += channels) {
    for (int sample = 0; sample < samples; ++sample, at += sizeof(From)) {
      From value;
      std::memcpy(&value, at, sizeof(From));
      to[sample] = static_cast<To>(value);
    }
  }
}

/// A picture whose channels are pages.
class ChannelPages final : public RegionSource {
 public:
  ChannelPages(Pages pages, const std::array<double, 3>& spacing_mm) : pages_(std::move(pages)) {
    for (std::size_t plane = 0; plane < pages_.numbers.size(); ++plane)
      sources_.push_back(open_page(pages_, plane, plane == 0 ? nullptr : sources_[0].get()));
    info_ = sources_[0]->info();
    line_.resize(static_cast<std::size_t>(info_.row_bytes()));
    info_.channels = pages_.channels();
    info_.spacing_mm = spacing_mm;
  }

  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override {
    return static_cast<std::int64_t>(sources_.size()) * sources_[0]->memory_bytes() +
           static_cast<std::int64_t>(line_.size() + pages_.places.size() * sizeof(std::uint64_t));
  }
  void read(int first, int count, void* to) override { read_rows(first, count, to, nullptr); }
  void read_with_holes(int first, int count, void* to, std::vector<Hole>& holes) override {
    read_rows(first, count, to, &holes);
  }

 private:
  void read_rows(int first, int count, void* to, std::vector<Hole>* holes) {
    auto* out = static_cast<std::uint8_t*>(to);
    for (int row = first; row < first + count; ++row, out += info_.row_bytes()) {
      std::vector<Hole> of_row;
      for (std::size_t plane = 0; plane < sources_.size(); ++plane) {
        naming(pages_.numbers[plane], [&] {
          holes == nullptr ? sources_[plane]->read(row, 1, line_.data())
                           : sources_[plane]->read_with_holes(row, 1, line_.data(), of_row);
        });
        const int samples = pages_.options.channels;
        const std::size_t channel = plane * static_cast<std::size_t>(samples);
        info_.type == DType::u8 ? put<std::uint8_t>(line_, samples, out + channel, info_.channels)
                                : put<float>(line_, samples, reinterpret_cast<float*>(out) + channel, info_.channels);
      }
      if (holes != nullptr) add_holes(std::move(of_row), out, *holes);
    }
  }

  // A hole in one page is a hole of all channels. Those of the pages overlap, but the result does not.
  void add_holes(std::vector<Hole> of_row, std::uint8_t* row, std::vector<Hole>& holes) const {
    std::ranges::sort(of_row, {}, &Hole::first_column);
    std::vector<Hole> apart;
    for (const Hole& hole : of_row) {
      if (!apart.empty() && hole.first_column <= apart.back().end_column) {
        apart.back().end_column = std::max(apart.back().end_column, hole.end_column);
      } else {
        apart.push_back(hole);
      }
    }
    const auto pixel_bytes = info_.row_bytes() / info_.size.columns;
    for (const Hole& hole : apart)
      std::fill_n(row + hole.first_column * pixel_bytes, (hole.end_column - hole.first_column) * pixel_bytes,
                  std::uint8_t{0});
    // The rows of a tile have the same holes, which become one.
    const bool go_on = holes.size() >= apart.size() &&
                       std::equal(apart.begin(), apart.end(), holes.end() - static_cast<std::ptrdiff_t>(apart.size()),
                                  [](const Hole& hole, const Hole& above) {
                                    return above.end_row == hole.first_row && above.first_column == hole.first_column &&
                                           above.end_column == hole.end_column;
                                  });
    if (!go_on) {
      holes.insert(holes.end(), apart.begin(), apart.end());
      return;
    }
    for (std::size_t i = holes.size() - apart.size(); i < holes.size(); ++i) ++holes[i].end_row;
  }

  const Pages pages_;
  std::vector<std::shared_ptr<RegionSource>> sources_;  // by plane
  RegionInfo info_;
  std::vector<std::uint8_t> line_;  // of a page
};

/// A volume whose slices are pages. A page is open only while it is read.
class SlicePages final : public RegionSource {
 public:
  SlicePages(Pages pages, const std::array<double, 3>& spacing_mm)
      : pages_(std::move(pages)), first_(open_page(pages_, 0, nullptr)) {
    const RegionInfo page = first_->info();
    const std::size_t slices = pages_.numbers.size() / static_cast<std::size_t>(pages_.planes);
    info_.size = {static_cast<int>(slices), page.size.rows, page.size.columns};
    if (std::max({info_.size.rows, info_.size.lines, info_.size.columns}) > most_nifti_voxels)
      throw PictureError(Reason::too_large, "a volume of " + std::to_string(info_.size.columns) + "x" +
                                                std::to_string(info_.size.lines) + "x" +
                                                std::to_string(info_.size.rows) + " voxels, but a NIfTI has at most " +
                                                std::to_string(most_nifti_voxels) + " along an axis");
    info_.channels = pages_.channels();
    info_.type = DType::f32;
    info_.volume = true;
    info_.spacing_mm = spacing_mm;
    nifti_1_header header = plain_nifti_header(info_.size);
    for (std::size_t axis = 0; axis < spacing_mm.size(); ++axis)
      if (spacing_mm[axis] > 0) header.pixdim[axis + 1] = static_cast<float>(spacing_mm[axis]);
    info_.nifti_header.assign(reinterpret_cast<const char*>(&header), sizeof(header));
    line_.resize(static_cast<std::size_t>(page.row_bytes()));
  }

  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override {
    return first_->memory_bytes() + static_cast<std::int64_t>(line_.size() + pages_.numbers.size() * sizeof(int) +
                                                              pages_.places.size() * sizeof(std::uint64_t));
  }

  void read(int first, int count, void* to) override {
    auto* out = static_cast<float*>(to);
    for (int slice = first; slice < first + count; ++slice, out += info_.size.row_values() * info_.channels) {
      for (int plane = 0; plane < pages_.planes; ++plane)
        read_page(
            static_cast<std::size_t>(slice) * static_cast<std::size_t>(pages_.planes) + static_cast<std::size_t>(plane),
            out + plane * pages_.options.channels);
    }
  }

 private:
  void read_page(std::size_t index, float* to) {
    const auto page = open_page(pages_, index, first_.get());
    naming(pages_.numbers[index], [&] {
      const int samples = pages_.options.channels;
      for (int y = 0; y < info_.size.lines; ++y, to += std::int64_t{info_.size.columns} * info_.channels) {
        page->read(y, 1, line_.data());
        first_->info().type == DType::u8 ? put<std::uint8_t>(line_, samples, to, info_.channels)
                                         : put<float>(line_, samples, to, info_.channels);
      }
    });
  }

  const Pages pages_;
  const std::shared_ptr<RegionSource> first_;  // what the others must be like; nothing is read through it
  RegionInfo info_;
  std::vector<std::uint8_t> line_;  // of a page
};

/// Fails if the model takes other channels or dimensions.
void check_model(const TiffStack& stack, int channels, const RegionOptions& options) {
  const bool volume = stack.slices > 1;
  if (volume && options.channels > 0)
    throw PictureError(Reason::unsupported_format, "a volume, but the windows of the model are pictures");
  if (!volume && options.volumes > 1)
    throw PictureError(Reason::unsupported_format, "a picture, but the windows of the model are volumes");
  const int wanted = volume ? options.volumes : options.channels;
  const std::string found = std::string("an ") + stack.format + " with " + counted(channels, "channel");
  if (wanted == 0)
    throw PictureError(Reason::unsupported_format,
                       found +
                           " in pages of their own, but the model takes RGB or volumes; give the package of a "
                           "model of such pictures the number with --channels");
  if (channels != wanted)
    throw PictureError(Reason::unsupported_format, found + ", but the model takes " + std::to_string(wanted));
}

/// Of the current page. ImageJ has the columns and lines as a resolution.
std::array<double, 3> spacing_of(const TiffStack& stack, const TiffFile& file) {
  std::array<double, 3> spacing_mm = stack.spacing_mm;
  if (stack.resolution_unit_mm == 0) return spacing_mm;
  for (const auto& [axis, name] : {std::pair{0U, TIFFTAG_XRESOLUTION}, {1U, TIFFTAG_YRESOLUTION}}) {
    const auto in_unit = static_cast<double>(file.tag<float>(static_cast<std::uint32_t>(name), 0));
    spacing_mm.at(axis) = std::isfinite(in_unit) && in_unit > 0 ? stack.resolution_unit_mm / in_unit : 0;
  }
  return spacing_mm;
}

}  // namespace

std::shared_ptr<RegionSource> open_tiff_or_stack(const std::shared_ptr<TiffFile>& file, const RegionOptions& options) {
  const std::optional<TiffStack> stack = read_tiff_stack(file->description(), options.memory_bytes);
  if (!stack) return open_tiff(file, options);
  const std::array<double, 3> spacing_mm = spacing_of(*stack, *file);
  Pages pages{file, {}, {}, options};
  // More samples than a model takes fail when the page is opened.
  pages.options.channels = std::max<int>(file->tag<std::uint16_t>(TIFFTAG_SAMPLESPERPIXEL, 1), 1);
  pages.planes = stack->planes_of_channels(pages.options.channels);
  pages.numbers = stack->pages(options.volume, pages.planes);
  const bool picture = stack->slices == 1 && pages.planes == 1;
  if (!picture) check_model(*stack, pages.channels(), options);

  const int last = *std::ranges::max_element(pages.numbers);
  pages.places = file->places(static_cast<std::size_t>(last) + 1);
  if (pages.places.size() <= static_cast<std::size_t>(last)) {
    if (stack->counts_planes && pages.places.size() == 1)
      throw PictureError(Reason::unsupported_format,
                         "an ImageJ stack above 4 GB, which describes its first page only; save it as OME-TIFF");
    throw PictureError(Reason::corrupt_data, std::string("an ") + stack->format + " with " +
                                                 counted(static_cast<int>(pages.places.size()), "page") +
                                                 ", but page " + std::to_string(last) + " is one of its planes");
  }
  file->go_to(pages.places[static_cast<std::size_t>(pages.numbers[0])]);
  const auto width = file->tag<std::uint32_t>(TIFFTAG_IMAGEWIDTH, 0);
  const auto height = file->tag<std::uint32_t>(TIFFTAG_IMAGELENGTH, 0);
  const bool same_size = stack->width == 0 || (width == static_cast<std::uint32_t>(stack->width) &&
                                               height == static_cast<std::uint32_t>(stack->height));
  if (picture) {
    // Programs that resize a picture may leave its description as it was.
    auto source = open_tiff(file, options, same_size ? spacing_mm : std::array<double, 3>{});
    if (source == nullptr && pages.numbers[0] != 0)
      throw PictureError(Reason::unsupported_format,
                         "page " + std::to_string(pages.numbers[0]) +
                             " has a palette, or is of another kind that is only read whole; convert it to RGB");
    return source;
  }
  if (!same_size)
    throw PictureError(Reason::corrupt_data, "its OME-XML names " + std::to_string(stack->width) + "x" +
                                                 std::to_string(stack->height) + " pixels, but page " +
                                                 std::to_string(pages.numbers[0]) + " has " + std::to_string(width) +
                                                 "x" + std::to_string(height));
  if (stack->slices > 1) return std::make_shared<SlicePages>(std::move(pages), spacing_mm);
  pages.options.memory_bytes /= pages.planes;
  return std::make_shared<ChannelPages>(std::move(pages), std::array{spacing_mm[0], spacing_mm[1], 0.0});
}

}  // namespace millrace
