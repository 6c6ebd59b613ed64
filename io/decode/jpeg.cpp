#include "io/decode/jpeg.hpp"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE

#include <jerror.h>
#include <jpeglib.h>

#include "io/decode/decode_raster.hpp"
#include "io/decode/exif.hpp"

namespace millrace {
namespace {

std::string percent(double fraction) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100.0 * fraction);
  return text.data();
}

/// The reason for an error of libjpeg. `ended`: the bytes had run out before.
Reason reason_of(int message_code, bool ended) {
  switch (message_code) {
    case JERR_NO_SOI:
      return Reason::not_an_image;
    case JERR_SOF_UNSUPPORTED:
    case JERR_BAD_PRECISION:
    case JERR_ARITH_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_CCIR601_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
      return Reason::unsupported_format;
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
      return Reason::too_large;
    case JERR_OUT_OF_MEMORY:
      return Reason::oom_host;
    default:
      return ended ? Reason::truncated : Reason::corrupt_data;
  }
}

/// One JPEG file in libjpeg, which leaves by longjmp when it finds an error.
/// So only `guarded` calls it, and the functions that it calls have no objects with destructors.
/// Everything that must survive a jump is a member.
class JpegFile {
 public:
  JpegFile(std::span<const std::uint8_t> bytes, const DecodeLimits& limits) : limits_(limits) {
    cinfo_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr c) { of(c).on_error(); };
    errors_.emit_message = [](j_common_ptr c, int level) { of(c).on_message(level); };
    errors_.output_message = [](j_common_ptr) {};
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = [](j_decompress_ptr c) { return of(c).on_end_of_data(); };
    source_.skip_input_data = [](j_decompress_ptr c, long count) { of(c).skip(count); };
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    source_.next_input_byte = bytes.data();
    source_.bytes_in_buffer = bytes.size();
    progress_.progress_monitor = [](j_common_ptr c) { of(c).count_scans(); };
    cinfo_.client_data = this;
    try {
      guarded([this] {
        jpeg_create_decompress(&cinfo_);
        cinfo_.client_data = this;
        cinfo_.src = &source_;
        jpeg_read_header(&cinfo_, TRUE);
        cinfo_.progress = &progress_;
      });
    } catch (...) {
      // The destructor does not run if the constructor throws.
      jpeg_destroy_decompress(&cinfo_);
      throw;
    }
  }
  ~JpegFile() { jpeg_destroy_decompress(&cinfo_); }
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;

  FileSize size() const { return {static_cast<int>(cinfo_.image_width), static_cast<int>(cinfo_.image_height)}; }

  /// libjpeg keeps a picture in several scans as coefficients, two bytes each, until it has read the last scan.
  std::int64_t coefficient_bytes() {
    if (!jpeg_has_multiple_scans(&cinfo_)) return 0;
    std::int64_t blocks = 0;
    for (int i = 0; i < cinfo_.num_components; ++i) {
      blocks += std::int64_t{cinfo_.comp_info[i].width_in_blocks} * cinfo_.comp_info[i].height_in_blocks;
    }
    return blocks * DCTSIZE2 * static_cast<std::int64_t>(sizeof(JCOEF));
  }

  void decode(Raster& raster, std::vector<std::string>& warnings) {
    const bool cmyk = cinfo_.jpeg_color_space == JCS_CMYK || cinfo_.jpeg_color_space == JCS_YCCK;
    // libjpeg does not convert CMYK to RGB, so read_cmyk() does.
    cinfo_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    guarded([this] { jpeg_start_decompress(&cinfo_); });
    check_scans();
    cmyk ? read_cmyk(raster) : read_rgb(raster);
    finish();
    if (ended_ && rows_complete_ < 0) warnings.emplace_back("the end marker of the JPEG is missing");
    if (rows_complete_ >= 0) warnings.push_back(truncation_text() + "; the rest is filler");
    if (odd_header_[0] != '\0') warnings.emplace_back(odd_header_.data());
  }

 private:
  template <class Common>
  static JpegFile& of(Common* c) {
    return *static_cast<JpegFile*>(c->client_data);
  }

  template <class Calls>
  void guarded(const Calls& calls) {
    if (setjmp(jump_) != 0) throw PictureError(reason_, failure_text());
    calls();
  }

  [[noreturn]] void leave(Reason reason) {
    reason_ = reason;
    std::longjmp(jump_, 1);
  }

  std::string truncation_text() const {
    const int height = static_cast<int>(cinfo_.image_height);
    return "the JPEG data end early: " + std::to_string(rows_complete_) + " of " + std::to_string(height) +
           " rows complete (" + percent(static_cast<double>(rows_complete_) / height) + ")";
  }

  std::string failure_text() const {
    if (reason_ == Reason::truncated && rows_complete_ >= 0) return truncation_text();
    if (reason_ == Reason::truncated) return "the JPEG data end inside the header";
    if (reason_ == Reason::too_large && message_[0] == '\0') return too_many_scans_text();
    std::string text = message_.data();
    if (scanning_)
      text += ", near row " + std::to_string(rows_before_input()) + " of " + std::to_string(cinfo_.image_height);
    return text;
  }

  std::string too_many_scans_text() const {
    return "the JPEG has more than " + std::to_string(cinfo_.input_scan_number - 1) + " scans of " +
           std::to_string(cinfo_.image_width) + " x " + std::to_string(cinfo_.image_height) + " pixels";
  }

  void on_error() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&cinfo_), message_.data());
    const Reason reason = reason_of(errors_.msg_code, ended_);
    // failure_text() gives the share of complete rows.
    if (reason == Reason::truncated) count_rows();
    leave(reason);
  }

  void on_message(int level) {
    if (level >= 0) return;  // a trace
    const int code = errors_.msg_code;
    // These warnings are about headers, not about the coded pixels.
    const bool harmless =
        code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR || code == JWRN_BOGUS_ICC || code == JWRN_NOT_SEQUENTIAL;
    if (harmless || (code == JWRN_EXTRANEOUS_DATA && cinfo_.input_scan_number == 0)) {
      errors_.format_message(reinterpret_cast<j_common_ptr>(&cinfo_), odd_header_.data());
      return;
    }
    scanning_ = true;
    // After the invented end marker the decoder wants more bits than exist: the picture ends here.
    if (ended_ && (code == JWRN_HIT_MARKER || code == JWRN_MUST_RESYNC)) return on_truncation();
    errors_.format_message(reinterpret_cast<j_common_ptr>(&cinfo_), message_.data());
    leave(Reason::corrupt_data);
  }

  /// The first time, we invent an end marker. If every bit of the picture has been read, only that marker was missing.
  boolean on_end_of_data() {
    static constexpr std::array<JOCTET, 2> end_marker{0xFF, JPEG_EOI};
    if (ended_ ||
        (cinfo_.arith_code && cinfo_.input_scan_number > 0)) {  // inside a marker; arithmetic decoding counts no bits
      count_rows();
      leave(Reason::truncated);
    }
    ended_ = true;
    source_.next_input_byte = end_marker.data();
    source_.bytes_in_buffer = end_marker.size();
    return TRUE;
  }

  void skip(long count) {
    if (count <= 0) return;
    if (static_cast<std::size_t>(count) > source_.bytes_in_buffer) {
      ended_ = true;
      count_rows();
      leave(Reason::truncated);
    }
    source_.next_input_byte += count;
    source_.bytes_in_buffer -= static_cast<std::size_t>(count);
  }

  int rows_before_input() const {
    return static_cast<int>(std::min<std::int64_t>(
        cinfo_.image_height, std::int64_t{cinfo_.input_iMCU_row} * cinfo_.max_v_samp_factor * DCTSIZE));
  }

  /// Whether the scans begun so far contain everything: each coefficient of each component to its last bit.
  bool last_scan_begun() const {
    for (int i = 0; i < cinfo_.num_components; ++i) {
      if (cinfo_.comp_info[i].quant_table == nullptr) return false;  // set by a component's first scan
      if (!cinfo_.progressive_mode) continue;
      for (int k = 0; k < DCTSIZE2; ++k) {
        if (cinfo_.coef_bits == nullptr || cinfo_.coef_bits[i][k] != 0) return false;
      }
    }
    return true;
  }

  void count_rows() {
    if (cinfo_.input_scan_number == 0) return;
    rows_complete_ = last_scan_begun() && !cinfo_.arith_code ? rows_before_input() : 0;
  }

  void on_truncation() {
    if (rows_complete_ >= 0) return;  // seen before
    count_rows();
    if (rows_complete_ < limits_.accept_truncated * cinfo_.image_height) leave(Reason::truncated);
  }

  /// A bomb costs time by its scans. Each scan visits every block of the picture.
  /// Two bytes of a scan can be enough for 32,767 blocks.
  void count_scans() {
    const int scan = cinfo_.input_scan_number;
    const std::int64_t visited = std::int64_t{scan} * cinfo_.image_width * cinfo_.image_height;
    if (scan > limits_.max_scans || (scan > 1 && visited > 16 * limits_.max_pixels)) {
      message_[0] = '\0';
      leave(Reason::too_large);
    }
  }

  /// After all scans of a picture with several: throws if some are missing.
  /// libjpeg gives no warning of a cut between two scans.
  void check_scans() {
    if (!jpeg_has_multiple_scans(&cinfo_) || last_scan_begun()) return;
    bool all_begun = !ended_;  // a file with a proper end may leave out the last bits
    for (int i = 0; i < cinfo_.num_components; ++i) {
      all_begun = all_begun && cinfo_.comp_info[i].quant_table != nullptr &&
                  (!cinfo_.progressive_mode || cinfo_.coef_bits[i][0] >= 0);
    }
    if (all_begun) return;
    rows_complete_ = 0;
    if (limits_.accept_truncated > 0)
      throw PictureError(Reason::truncated, "the last scans of the JPEG are missing: " + truncation_text());
  }

  void read_rgb(Raster& raster) {
    const int height = size().height;
    while (static_cast<int>(cinfo_.output_scanline) < height) {
      const int first = static_cast<int>(cinfo_.output_scanline);
      const int count = std::min(Raster::strip_rows, height - first);
      for (int i = 0; i < count; ++i) rows_[static_cast<std::size_t>(i)] = raster.row(first + i);
      guarded([this, count, first] {
        while (static_cast<int>(cinfo_.output_scanline) < first + count) {
          const int done = static_cast<int>(cinfo_.output_scanline) - first;
          jpeg_read_scanlines(&cinfo_, rows_.data() + done, static_cast<JDIMENSION>(count - done));
        }
      });
      raster.commit(first + count);
    }
  }

  void read_cmyk(Raster& raster) {
    const auto [width, height] = size();
    std::vector<JSAMPLE> line(std::size_t{4} * static_cast<std::size_t>(width));
    rows_[0] = line.data();
    const unsigned flip = cinfo_.saw_Adobe_marker ? 0 : 255;  // Adobe stores 255 - ink
    for (int y = 0; y < height; ++y) {
      guarded([this] { jpeg_read_scanlines(&cinfo_, rows_.data(), 1); });
      std::uint8_t* to = raster.row(y);
      for (const JSAMPLE* from = line.data(); from != line.data() + line.size(); from += 4, to += 3) {
        const unsigned black = from[3] ^ flip;
        for (int c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>(((from[c] ^ flip) * black + 127) / 255);
      }
      raster.commit(y + 1);
    }
  }

  /// Reads up to the end marker, to find data left over in the scan.
  /// All rows exist by now, so a missing end does no harm.
  void finish() {
    try {
      guarded([this] { jpeg_finish_decompress(&cinfo_); });
    } catch (const PictureError& error) {
      if (error.reason() != Reason::truncated) throw;
      rows_complete_ = -1;
    }
  }

  const DecodeLimits& limits_;
  jpeg_decompress_struct cinfo_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_{};
  Reason reason_ = Reason::internal;
  bool ended_ = false;      // libjpeg has the file's last byte and an invented end marker
  bool scanning_ = false;   // the failure is inside a scan
  int rows_complete_ = -1;  // when the data ended; -1: they did not end early
  std::array<char, JMSG_LENGTH_MAX> message_{}, odd_header_{};
  std::array<JSAMPROW, Raster::strip_rows> rows_{};
};

PictureInfo info_of(JpegFile& file, std::span<const std::uint8_t> bytes, const DecodeLimits& limits) {
  PictureInfo info{.format = PictureFormat::jpeg, .orientation = jpeg_orientation(bytes)};
  plan_raster(info, file.size(), limits);
  info.working_bytes = file.coefficient_bytes();
  check_working_bytes(info, limits, "the coefficients of a JPEG in several scans");
  return info;
}

}  // namespace

PictureInfo probe_jpeg(std::span<const std::uint8_t> bytes, const DecodeLimits& limits) {
  JpegFile file(bytes, limits);
  return info_of(file, bytes, limits);
}

void decode_jpeg(std::span<const std::uint8_t> bytes, const PictureInfo& info, const DecodeLimits& limits,
                 std::uint8_t* pixels, std::vector<std::string>& warnings) {
  JpegFile file(bytes, limits);
  const FileSize expected = file_size_of(info);
  if (file.size().width != expected.width || file.size().height != expected.height) {
    throw PictureError(Reason::changed_since_plan, "the JPEG changed after its header was read");
  }
  Raster raster(info, pixels);
  file.decode(raster, warnings);
}

}  // namespace millrace
