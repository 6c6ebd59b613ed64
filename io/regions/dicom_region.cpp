// The code of libmillrace_dicom.so.
#include <nifti1.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include <strings.h>
#include <sys/stat.h>

#include "io/files/source_names.hpp"
#include "io/regions/dicom_header.hpp"
#include "io/regions/dicom_pixels.hpp"
#include "io/regions/nifti_header.hpp"
#include "io/regions/region_plugin.hpp"

namespace millrace {
namespace {

using Vector = std::array<double, 3>;
double dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
Vector sum(const Vector& a, const Vector& b, double factor) {
  return {a[0] + factor * b[0], a[1] + factor * b[1], a[2] + factor * b[2]};
}
double length(const Vector& a) { return std::sqrt(dot(a, a)); }

/// A file of a series. The vectors are in the directions of DICOM: to the left, to the back and to the head.
struct Slice {
  std::string name;
  std::int64_t bytes = 0, mtime_ns = 0;
  DicomHeader header;
  Vector along_line() const { return {header.orientation[0], header.orientation[1], header.orientation[2]}; }
  Vector down() const { return {header.orientation[3], header.orientation[4], header.orientation[5]}; }
  Vector normal() const {
    const Vector a = along_line(), b = down();
    return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
  }
};

/// Calls `act`. Its errors get the name of the file.
template <class Act>
auto naming(const std::string& name, const Act& act) {
  try {
    return act();
  } catch (const PictureError& error) {
    throw PictureError(error.reason(), "'" + display_name(name) + "': " + error.what());
  }
}

[[noreturn]] void fail(const Slice& a, const std::string& what, const Slice& b, const std::string& how = {}) {
  throw PictureError(Reason::corrupt_data,
                     "'" + display_name(a.name) + "' " + what + " '" + display_name(b.name) + "'" + how);
}

std::string millimetres(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g mm", value);
  return text.data();
}

bool is_dicom_name(const std::filesystem::path& path) { return ::strcasecmp(path.extension().c_str(), ".dcm") == 0; }

/// The names of the files of a series: all .dcm files of its folder, sorted by bytes. Of hidden ones, only `own` counts.
std::vector<std::string> names_in(const std::filesystem::path& folder, const std::string& own) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    std::string name = entry->path().filename().string();
    if (is_dicom_name(name) && (!name.starts_with('.') || name == own) && !entry->is_directory(unknown))
      names.push_back(std::move(name));
  }
  if (error)
    throw PictureError(Reason::io_error, "the folder of this DICOM series cannot be listed: " + error.message());
  std::ranges::sort(names);
  return names;
}

OpenFile open_slice(const std::filesystem::path& folder, Slice& slice) {
  OpenFile file(folder / slice.name, {.max_bytes = std::numeric_limits<std::int64_t>::max()});
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) throw PictureError(Reason::io_error, "fstat failed");
  const std::int64_t mtime_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  const bool is_known = slice.bytes != 0;
  if (is_known && (slice.bytes != status.st_size || slice.mtime_ns != mtime_ns))
    throw PictureError(Reason::changed_since_plan, "it was modified after its series was opened");
  slice.bytes = status.st_size;
  slice.mtime_ns = mtime_ns;
  return file;
}

Slice read_slice(const std::filesystem::path& folder, const std::string& name, const RegionOptions& options) {
  return naming(name, [&] {
    Slice slice{name, 0, 0, {}};
    const OpenFile file = open_slice(folder, slice);
    slice.header = read_dicom_header(file.descriptor(), slice.bytes);
    const DicomHeader& header = slice.header;
    const std::string size =
        "a slice of " + std::to_string(header.columns) + "x" + std::to_string(header.rows) + " voxels";
    if (header.rows > most_nifti_voxels || header.columns > most_nifti_voxels)
      throw PictureError(Reason::too_large,
                         size + "; a NIfTI has at most " + std::to_string(most_nifti_voxels) + " along an axis");
    if (header.values() * dicom_working_bytes > options.memory_bytes)
      throw PictureError(Reason::too_large, size + ", more than gate.slab allows; raise gate.slab");
    if (header.coding != DicomCoding::raw && slice.bytes > options.memory_bytes)
      throw PictureError(Reason::too_large, "a slice of " + std::to_string(slice.bytes) +
                                                " bytes, more than gate.slab allows; raise gate.slab");
    return slice;
  });
}

/// Whether numbers of two headers mean the same. They are rounded when they are written as text.
template <std::size_t count>
bool are_close(const std::array<double, count>& a, const std::array<double, count>& b, double error) {
  return std::ranges::equal(a, b, [&](double x, double y) { return std::abs(x - y) <= error; });
}

void check_alike(const Slice& slice, const Slice& first) {
  const DicomHeader &a = slice.header, &b = first.header;
  if (a.series != b.series) fail(slice, "is of another series than", first, "; give each series a folder of its own");
  if (a.rows != b.rows || a.columns != b.columns) fail(slice, "has another size than", first);
  if (a.bytes != b.bytes || a.bits_stored != b.bits_stored || a.high_bit != b.high_bit || a.is_signed != b.is_signed)
    fail(slice, "has another format of pixels than", first);
  if (!are_close(a.spacing, b.spacing, 1e-4 * b.spacing[0])) fail(slice, "has another PixelSpacing than", first);
  if (!are_close(a.orientation, b.orientation, 1e-4)) fail(slice, "has another ImageOrientationPatient than", first);
}

/// The slices in the order of space. The affine of a volume has one step from each slice to the next.
struct Series {
  std::vector<Slice> slices;
  Vector step{};        ///< from a slice to the next, in mm
  double distance = 0;  ///< of two slices, in mm
};

void sort_in_space(Series& series) {
  auto& slices = series.slices;
  const Vector normal = slices[0].normal();
  std::ranges::stable_sort(slices, {}, [&](const Slice& slice) { return dot(slice.header.position, normal); });
  if (slices.size() == 1) {
    series.distance = slices[0].header.thickness;
    if (series.distance <= 0)
      throw PictureError(Reason::unsupported_format, "'" + display_name(slices[0].name) +
                                                         "' is the only slice, and has no SliceThickness (0018,0050)");
    series.step = sum({}, normal, series.distance);
    return;
  }
  const auto from_to = [&](std::size_t i) { return sum(slices[i + 1].header.position, slices[i].header.position, -1); };
  std::vector<double> distances;
  for (std::size_t i = 0; i + 1 < slices.size(); ++i) {
    distances.push_back(dot(from_to(i), normal));
    if (distances[i] < 1e-3) fail(slices[i], "has the same position as", slices[i + 1]);
  }
  std::vector<double> sorted = distances;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  series.distance = *middle;
  series.step = sum({}, sum(slices.back().header.position, slices.front().header.position, -1),
                    1 / static_cast<double>(slices.size() - 1));
  const double error = std::max(0.01 * series.distance, 0.01);
  for (std::size_t i = 0; i < distances.size(); ++i) {
    if (std::abs(distances[i] - series.distance) > error)
      fail(slices[i], "and its neighbour", slices[i + 1],
           " are " + millimetres(distances[i]) + " apart, but most slices " + millimetres(series.distance) +
               ": is a file missing?");
  }
  for (std::size_t i = 0; i < distances.size(); ++i) {
    const Vector other = sum(from_to(i), series.step, -1);
    if (length(sum(other, normal, -dot(other, normal))) > error)
      fail(slices[i + 1], "is shifted sideways from", slices[i], ", unlike most slices");
  }
}

/// NIfTI has directions to the right and to the front instead, so two rows of the affine change sign.
Affine affine_of(const Series& series) {
  const Slice& first = series.slices.front();
  const std::array<Vector, 4> columns{sum({}, first.along_line(), first.header.spacing[1]),
                                      sum({}, first.down(), first.header.spacing[0]), series.step,
                                      first.header.position};
  Affine affine{};
  for (std::size_t i = 0; i < columns.size(); ++i) {
    affine[0][i] = -columns[i][0];
    affine[1][i] = -columns[i][1];
    affine[2][i] = columns[i][2];
  }
  return affine;
}

/// A header for labels.
std::string nifti_header_of(const Series& series) {
  const Slice& first = series.slices.front();
  nifti_1_header header =
      plain_nifti_header({static_cast<int>(series.slices.size()), first.header.rows, first.header.columns});
  header.sform_code = NIFTI_XFORM_SCANNER_ANAT;
  const Affine affine = affine_of(series);
  for (std::size_t i = 0; i < 4; ++i) {
    if (i < 3) header.pixdim[i + 1] = static_cast<float>(length({affine[0][i], affine[1][i], affine[2][i]}));
    header.srow_x[i] = static_cast<float>(affine[0][i]);
    header.srow_y[i] = static_cast<float>(affine[1][i]);
    header.srow_z[i] = static_cast<float>(affine[2][i]);
  }
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

template <class T>
void to_floats(const std::vector<std::uint8_t>& from, const DicomHeader& header, float* to) {
  const int left = 31 - header.high_bit, right = 32 - header.bits_stored;  // drops the bits that do not count
  for (std::size_t i = 0; i < from.size() / sizeof(T); ++i) {
    T stored = 0;
    std::memcpy(&stored, from.data() + i * sizeof(T), sizeof(T));
    const std::uint32_t bits = static_cast<std::uint32_t>(stored) << left;
    // In 64 bits, which hold the numbers of both kinds.
    const std::int64_t value =
        header.is_signed ? std::int64_t{static_cast<std::int32_t>(bits) >> right} : std::int64_t{bits >> right};
    to[i] = static_cast<float>(static_cast<double>(value) * header.slope + header.intercept);
  }
}

/// A volume whose rows are the files of a series.
class DicomRegion final : public RegionSource {
 public:
  DicomRegion(std::filesystem::path folder, const std::string& own_name, Series series)
      : folder_(std::move(folder)), series_(std::move(series)) {
    const DicomHeader& header = series_.slices[0].header;
    info_.size = {static_cast<int>(series_.slices.size()), header.rows, header.columns};
    info_.channels = 1;
    info_.type = DType::f32;
    info_.volume = true;
    info_.spacing_mm = {header.spacing[1], header.spacing[0], series_.distance};
    info_.nifti_header = nifti_header_of(series_);
    info_.affine = affine_of(series_);
    const Slice& first = series_.slices.front();
    const std::array steps{first.along_line(), first.down(), series_.step};
    // DICOM's first two directions are those to the left and to the back.
    for (std::size_t axis = 0; axis < steps.size(); ++axis)
      info_.directions[axis] = {-steps[axis][0], -steps[axis][1], steps[axis][2]};
    std::string others;
    for (const Slice& slice : series_.slices) {
      memory_bytes_ += static_cast<std::int64_t>(sizeof(Slice) + slice.name.size() + slice.header.series.size());
      if (slice.name == own_name) continue;
      info_.other_bytes += slice.bytes;
      others += slice.name + '\0' + std::to_string(slice.bytes) + ' ' + std::to_string(slice.mtime_ns) + ' ';
    }
    info_.other_files = std::to_string(XXH3_64bits(others.data(), others.size()));
    memory_bytes_ += header.values() * header.bytes;
  }

  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return memory_bytes_; }

  void read(int first, int count, void* to) override {
    auto* out = static_cast<float*>(to);
    for (int row = first; row < first + count; ++row, out += info_.size.row_values()) {
      Slice& slice = series_.slices[static_cast<std::size_t>(row)];
      naming(slice.name, [&] {
        const OpenFile file = open_slice(folder_, slice);
        read_dicom_pixels(file.descriptor(), slice.bytes, slice.header, stored_);
      });
      const auto convert = slice.header.bytes == 1   ? to_floats<std::uint8_t>
                           : slice.header.bytes == 2 ? to_floats<std::uint16_t>
                                                     : to_floats<std::uint32_t>;
      convert(stored_, slice.header, out);
    }
  }

 private:
  const std::filesystem::path folder_;
  Series series_;
  RegionInfo info_;
  std::int64_t memory_bytes_ = 0;
  std::vector<std::uint8_t> stored_;
};

void open_dicom(const std::filesystem::path& path, const RegionOptions& options,
                std::shared_ptr<RegionSource>& source) {
  if (!is_dicom_name(path))
    throw PictureError(Reason::unsupported_format,
                       "a DICOM file without the extension .dcm, which slices of a volume must have");
  if (options.volumes > 1)
    throw PictureError(Reason::unsupported_format, "a series of DICOM is one volume, but the model takes " +
                                                       std::to_string(options.volumes) + " channels");
  if (options.volume > 0)
    throw PictureError(Reason::unsupported_format, "a DICOM series is 1 volume, so there is no volume " +
                                                       std::to_string(options.volume) + "; they count from 0");
  const std::filesystem::path folder = path.parent_path().empty() ? "." : path.parent_path();
  const std::string own_name = path.filename();
  Series series;
  const Slice own = read_slice(folder, own_name, options);
  const std::vector<std::string> names = names_in(folder, own_name);
  if (names.size() > most_nifti_voxels)
    throw PictureError(Reason::too_large, "a DICOM series of " + std::to_string(names.size()) +
                                              " files, more than a NIfTI can have slices");
  for (const std::string& name : names) {
    series.slices.push_back(name == own_name ? own : read_slice(folder, name, options));
    check_alike(series.slices.back(), own);
  }
  sort_in_space(series);
  source = std::make_shared<DicomRegion>(folder, own_name, std::move(series));
}

}  // namespace
}  // namespace millrace

extern "C" __attribute__((visibility("default"))) void millrace_region_open(
    millrace::OpenFile /*file*/, const std::string& path, const millrace::RegionOptions& options,
    std::shared_ptr<millrace::RegionSource>& source) {
  millrace::open_dicom(path, options, source);
}
