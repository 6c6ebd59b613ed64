// The only code that links to OpenCV's imgcodecs, which pulls in 139 libraries and 0.4 s of start-up.
// So it is a library of its own, which the program loads when the first picture needs it.
#include "io/decode/imgcodecs_plugin.hpp"

#include <array>
#include <cstdio>
#include <new>

#include <opencv2/core/utility.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>

namespace millrace {
namespace {

ImgcodecsResult fail(const ImgcodecsRequest& request, ImgcodecsResult result, const char* text) {
  std::snprintf(request.message, request.message_size, "%s", text);
  return result;
}

/// Converts one row of BGR(A) or grey to RGB8. Blends over white in the pixel's own depth and rounds once.
template <class Sample>
void convert(const Sample* from, int width, int channels, const ImgcodecsRequest& request, std::uint8_t* to) {
  constexpr std::uint64_t top = static_cast<Sample>(~Sample{0});
  for (int x = 0; x < width; ++x, from += channels, to += 3) {
    const bool grey = channels < 3;
    const std::array<std::uint64_t, 3> rgb{from[grey ? 0 : 2], from[grey ? 0 : 1], from[0]};
    const std::uint64_t alpha = channels == 4 && request.alpha_counts ? from[3] : top;
    const bool premultiplied = request.premultiplied && sizeof(Sample) == 1;
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint64_t weighted = premultiplied ? std::min(rgb[c], alpha) * top : rgb[c] * alpha;
      to[c] = static_cast<std::uint8_t>(((weighted + top * (top - alpha)) * 255 + top * top / 2) / (top * top));
    }
  }
}

ImgcodecsResult decode(const ImgcodecsRequest& request) {
  cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);  // our own message follows
  cv::setNumThreads(0);                                                   // its threads would multiply with ours
  const cv::Mat encoded(1, static_cast<int>(request.size), CV_8UC1, const_cast<std::uint8_t*>(request.bytes));
  const cv::Mat image = cv::imdecode(encoded, cv::IMREAD_UNCHANGED);
  if (image.empty())
    return fail(request, ImgcodecsResult::corrupt_data,
                "OpenCV cannot decode it: its data are incomplete, inconsistent or of a rare kind");
  if (image.cols != request.width || image.rows != request.height) {
    return fail(request, ImgcodecsResult::corrupt_data, "the decoded size differs from the header's");
  }
  const int channels = image.channels();
  if ((image.depth() != CV_8U && image.depth() != CV_16U) || (channels != 1 && channels != 3 && channels != 4)) {
    return fail(request, ImgcodecsResult::unsupported_format,
                "its samples are not of 8 or 16 bits, or not grey or RGB");
  }
  for (int y = 0; y < image.rows; ++y) {
    std::uint8_t* to = request.row(request.raster, y);
    if (image.depth() == CV_8U) {
      convert(image.ptr<std::uint8_t>(y), image.cols, channels, request, to);
    } else {
      convert(image.ptr<std::uint16_t>(y), image.cols, channels, request, to);
    }
    request.commit(request.raster, y + 1);
  }
  return ImgcodecsResult::ok;
}

}  // namespace

extern "C" ImgcodecsResult millrace_imgcodecs_decode(const ImgcodecsRequest& request) {
  try {
    return decode(request);
  } catch (const std::bad_alloc&) {
    return ImgcodecsResult::out_of_memory;
  } catch (const cv::Exception& error) {
    return fail(request,
                error.code == cv::Error::StsNoMem ? ImgcodecsResult::out_of_memory : ImgcodecsResult::corrupt_data,
                error.err.c_str());
  } catch (const std::exception& error) {
    return fail(request, ImgcodecsResult::corrupt_data, error.what());
  }
}

}  // namespace millrace
