// The code of libmillrace_nifti.so.
#include <nifti1_io.h>
#include <znzlib.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/regions/region_plugin.hpp"

namespace millrace {
namespace {

struct FreeImage {
  void operator()(nifti_image* image) const { nifti_image_free(image); }
};
struct CloseFile {
  void operator()(znzptr* file) const { Xznzclose(&file); }
};

template <class T>
void to_floats(const std::vector<char>& from, float slope, float intercept, float* to) {
  const std::size_t count = from.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from.data() + i * sizeof(T), sizeof(T));
    to[i] = slope == 1 && intercept == 0 ? static_cast<float>(value) : static_cast<float>(value) * slope + intercept;
  }
}

using Convert = void (*)(const std::vector<char>& from, float slope, float intercept, float* to);

Convert conversion_of(int datatype) {
  switch (datatype) {
    case DT_UINT8:
      return to_floats<std::uint8_t>;
    case DT_INT8:
      return to_floats<std::int8_t>;
    case DT_INT16:
      return to_floats<std::int16_t>;
    case DT_UINT16:
      return to_floats<std::uint16_t>;
    case DT_INT32:
      return to_floats<std::int32_t>;
    case DT_UINT32:
      return to_floats<std::uint32_t>;
    case DT_FLOAT32:
      return to_floats<float>;
    case DT_FLOAT64:
      return to_floats<double>;
    default:
      return nullptr;
  }
}

/// A volume that is read slice by slice. A compressed file can only be read forwards.
class NiftiRegion final : public RegionSource {
 public:
  NiftiRegion(std::unique_ptr<nifti_image, FreeImage> image, const RegionOptions& options)
      : image_(std::move(image)),
        convert_(conversion_of(image_->datatype)),
        volume_(options.volume),
        files_(static_cast<std::size_t>(options.volumes)) {
    info_.size = {static_cast<int>(std::max<std::int64_t>(image_->nz, 1)), static_cast<int>(image_->ny),
                  static_cast<int>(image_->nx)};
    info_.channels = options.volumes;
    info_.type = DType::f32;
    info_.volume = true;
    const double mm = image_->xyz_units == NIFTI_UNITS_METER    ? 1000
                      : image_->xyz_units == NIFTI_UNITS_MICRON ? 0.001
                                                                : 1;
    info_.spacing_mm = {mm * std::abs(image_->dx), mm * std::abs(image_->dy), mm * std::abs(image_->dz)};
    if (image_->sform_code > 0 || image_->qform_code > 0) {
      const mat44& to_space = image_->sform_code > 0 ? image_->sto_xyz : image_->qto_xyz;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        for (std::size_t space = 0; space < 3; ++space)
          info_.directions[axis][space] = static_cast<double>(to_space.m[space][axis]);
      }
      Affine affine{};
      bool finite = true;
      for (std::size_t space = 0; space < 3; ++space) {
        for (std::size_t axis = 0; axis < 4; ++axis) {
          affine[space][axis] = mm * static_cast<double>(to_space.m[space][axis]);
          finite = finite && std::isfinite(affine[space][axis]);
        }
      }
      if (finite) info_.affine = affine;
    }
    const nifti_1_header header = nifti_convert_nim2nhdr(image_.get());
    info_.nifti_header.assign(reinterpret_cast<const char*>(&header), sizeof(header));
    // A slope of 0 means that there is none.
    if (image_->scl_slope != 0) slope_ = image_->scl_slope, intercept_ = image_->scl_inter;
    slice_.resize(static_cast<std::size_t>(info_.size.row_values()) * static_cast<std::size_t>(image_->nbyper));
    if (options.volumes > 1) plane_.resize(static_cast<std::size_t>(info_.size.row_values()));
  }

  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override {
    return static_cast<std::int64_t>(slice_.size() + plane_.size() * sizeof(float));
  }

  void read(int first, int count, void* to) override {
    for (std::size_t channel = 0; next_ == 0 && channel < files_.size(); ++channel) {
      if (files_[channel] == nullptr) open(channel);
    }
    auto* out = static_cast<float*>(to);
    for (; next_ < first + count; ++next_) {
      for (std::size_t channel = 0; channel < files_.size(); ++channel) {
        read_slice(channel);
        if (next_ < first) continue;
        if (plane_.empty()) {
          convert_(slice_, slope_, intercept_, out);
        } else {
          convert_(slice_, slope_, intercept_, plane_.data());
          for (std::size_t i = 0; i < plane_.size(); ++i) out[i * files_.size() + channel] = plane_[i];
        }
      }
      if (next_ >= first) out += info_.size.row_values() * info_.channels;
    }
    // The item may wait for others while nothing is left to read.
    if (next_ == info_.size.rows) {
      for (auto& file : files_) file.reset();
    }
  }

 private:
  // Each volume is read through a handle of its own, since a compressed file can only be read forwards.
  void open(std::size_t channel) {
    const std::int64_t number = volume_ + static_cast<std::int64_t>(channel);
    files_[channel].reset(znzopen(image_->iname, "rb", nifti_is_gzfile(image_->iname)));
    if (files_[channel] == nullptr) throw PictureError(Reason::io_error, "the data of this NIfTI cannot be opened");
    const auto volume = static_cast<std::int64_t>(slice_.size()) * info_.size.rows;
    if (znzseek(files_[channel].get(), std::int64_t{image_->iname_offset} + volume * number, SEEK_SET) < 0)
      throw PictureError(Reason::truncated, "the data of this NIfTI end before volume " + std::to_string(number));
  }

  void read_slice(std::size_t channel) {
    const std::size_t got = znzread(slice_.data(), 1, slice_.size(), files_[channel].get());
    if (got != slice_.size())
      throw PictureError(Reason::truncated, "the data of this NIfTI end in slice " + std::to_string(next_) + " of " +
                                                std::to_string(info_.size.rows));
    if (image_->swapsize > 1 && image_->byteorder != nifti_short_order())
      nifti_swap_Nbytes(slice_.size() / static_cast<std::size_t>(image_->swapsize), image_->swapsize, slice_.data());
  }

  const std::unique_ptr<nifti_image, FreeImage> image_;
  const Convert convert_;
  const int volume_;
  RegionInfo info_;
  float slope_ = 1, intercept_ = 0;
  std::vector<char> slice_;
  std::vector<float> plane_;                               // of one channel of several
  std::vector<std::unique_ptr<znzptr, CloseFile>> files_;  // by channel
  int next_ = 0;                                           // slice
};

void open_nifti(const std::string& path, const RegionOptions& options, std::shared_ptr<RegionSource>& source) {
  nifti_set_debug_level(0);  // our own messages follow
  std::unique_ptr<nifti_image, FreeImage> image(nifti_image_read(path.c_str(), 0));
  if (image == nullptr)
    throw PictureError(Reason::corrupt_data, "the header of this NIfTI cannot be read, or contradicts itself");
  if (image->nx < 1 || image->ny < 1 || image->nz < 1 || image->ndim > 4)
    throw PictureError(Reason::unsupported_format, "a NIfTI of " + std::to_string(image->ndim) +
                                                       " dimensions; volumes, and series of volumes, are read");
  if (conversion_of(image->datatype) == nullptr)
    throw PictureError(Reason::unsupported_format,
                       std::string("a NIfTI of ") + nifti_datatype_string(image->datatype) +
                           "; real numbers of up to 64 bits and whole numbers of up to 32 bits are read");
  const std::int64_t slice = std::int64_t{image->nx} * image->ny * options.volumes * std::int64_t{sizeof(double)};
  if (slice > options.memory_bytes)
    throw PictureError(Reason::too_large, "a slice of this NIfTI has " + std::to_string(image->nx) + "x" +
                                              std::to_string(image->ny) +
                                              " voxels, more than gate.slab allows; raise gate.slab");
  const std::int64_t volumes = std::max<std::int64_t>(image->nt, 1);
  if (options.volumes > 1 && options.volume > volumes - options.volumes)
    throw PictureError(
        Reason::unsupported_format,
        "this NIfTI has " + std::to_string(volumes) + (volumes == 1 ? " volume" : " volumes") +
            ", but the model takes " + std::to_string(options.volumes) + " channels" +
            (options.volume > 0 ? " from volume " + std::to_string(options.volume) + " on; lower decode.volume"
                                : "; merge the files of its channels into one NIfTI"));
  if (options.volume >= volumes)
    throw PictureError(Reason::unsupported_format,
                       "this NIfTI has " + std::to_string(image->nt) + (image->nt == 1 ? " volume" : " volumes") +
                           ", so there is no volume " + std::to_string(options.volume) + "; they count from 0");
  source = std::make_shared<NiftiRegion>(std::move(image), options);
}

}  // namespace
}  // namespace millrace

extern "C" __attribute__((visibility("default"))) void millrace_region_open(
    millrace::OpenFile /*file*/, const std::string& path, const millrace::RegionOptions& options,
    std::shared_ptr<millrace::RegionSource>& source) {
  millrace::open_nifti(path, options, source);
}
