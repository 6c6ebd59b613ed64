#include "io/regions/tiff_stack.hpp"

#include <pugixml.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "io/files/decode_error.hpp"

namespace millrace {
namespace {

constexpr std::int64_t most_planes = 65'535LL * 16;  // 65,535 slices with the most channels that a model takes
constexpr std::int64_t tree_bytes = 34;  // at most, of pugixml's tree, for each byte of a text; <a>x is the worst

[[noreturn]] void corrupt(const std::string& what) { throw PictureError(Reason::corrupt_data, what); }

template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A length above 0, or 0: unknown.
double length_of(std::string_view text) {
  const double value = number_of<double>(text).value_or(0);
  return std::isfinite(value) && value > 0 ? value : 0;
}

/// 0: not a unit of length.
double millimetres_of(std::string_view unit) {
  // Of micro there are two letters in Unicode, and ImageJ writes one of them as an escape.
  static constexpr std::array<std::pair<std::string_view, double>, 20> units{
      {{"µm", 1e-3},     {"μm", 1e-3},        {"\\u00B5m", 1e-3},   {"um", 1e-3},
       {"micron", 1e-3}, {"microns", 1e-3},   {"micrometer", 1e-3}, {"micrometre", 1e-3},
       {"nm", 1e-6},     {"nanometer", 1e-6}, {"nanometre", 1e-6},  {"pm", 1e-9},
       {"Å", 1e-7},      {"mm", 1},           {"millimeter", 1},    {"cm", 10},
       {"m", 1000},      {"in", 25.4},        {"inch", 25.4},       {"\xB5m", 1e-3}}};  // in Latin-1
  const auto* const found = std::ranges::find(units, unit, &std::pair<std::string_view, double>::first);
  return found == units.end() ? 0 : found->second;
}

void check_planes(const TiffStack& stack) {
  // Each product is at most 2^62.
  const std::int64_t planes = std::int64_t{stack.slices} * stack.channels;
  if (planes > most_planes || planes * stack.times > most_planes)
    throw PictureError(Reason::too_large, std::string("an ") + stack.format + " of " + std::to_string(stack.slices) +
                                              " slices, " + std::to_string(stack.channels) + " channels and " +
                                              std::to_string(stack.times) + " points in time; at most " +
                                              std::to_string(most_planes) + " planes are read");
}

// Names count without their prefix, as in ome:Pixels.
std::string_view name_of(const pugi::xml_node& node) {
  const std::string_view name = node.name();
  return name.substr(name.find(':') + 1);
}

pugi::xml_node child(const pugi::xml_node& node, std::string_view name) {
  return node.find_child([&](const pugi::xml_node& one) { return name_of(one) == name; });
}

/// A whole number of an attribute, from `least` on. None: the element has no such attribute.
std::optional<int> whole(const pugi::xml_node& node, const char* name, int least) {
  const pugi::xml_attribute attribute = node.attribute(name);
  if (!attribute) return std::nullopt;
  const auto value = number_of<int>(attribute.value());
  if (!value || *value < least)
    corrupt(std::string(name) + " in its OME-XML is no whole number from " + std::to_string(least) + " to 2147483647");
  return value;
}

int size_of(const pugi::xml_node& pixels, const char* name) {
  const auto value = whole(pixels, name, 1);
  if (!value) corrupt(std::string("its OME-XML has no ") + name);
  return *value;
}

double spacing_of(const pugi::xml_node& pixels, const std::string& name) {
  const pugi::xml_attribute unit = pixels.attribute((name + "Unit").c_str());
  return length_of(pixels.attribute(name.c_str()).value()) * (unit ? millimetres_of(unit.value()) : 1e-3);
}

/// Fails if some planes lie in another file. A file that was renamed still names itself by its old name.
void check_files(const pugi::xml_node& root, const std::vector<std::string>& files) {
  const std::string own = root.attribute("UUID").value();
  const bool others = std::ranges::any_of(
      files, [&](const std::string& file) { return !file.empty() && file != (own.empty() ? files.front() : own); });
  if (others || child(root, "BinaryOnly"))
    throw PictureError(Reason::unsupported_format,
                       "an OME-TIFF that is spread over several files; convert it to one file");
}

/// None: the document is other XML.
std::optional<TiffStack> read_ome(std::string_view text, std::int64_t memory_bytes) {
  if (static_cast<std::int64_t>(text.size()) > memory_bytes / tree_bytes)
    throw PictureError(Reason::too_large, "its OME-XML has " + std::to_string(text.size()) +
                                              " bytes, more than gate.slab allows; raise gate.slab");
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(text.data(), text.size());
  if (parsed.status == pugi::status_out_of_memory) throw std::bad_alloc();
  if (!parsed)
    corrupt("its OME-XML cannot be read at byte " + std::to_string(parsed.offset) + ": " + parsed.description());
  const pugi::xml_node root = document.document_element();
  if (name_of(root) != "OME") return std::nullopt;
  const pugi::xml_node pixels = child(child(root, "Image"), "Pixels");
  std::vector<std::string> files;
  TiffStack stack;
  stack.runs.clear();
  for (const pugi::xml_node& data : pixels.children()) {
    if (name_of(data) != "TiffData") continue;
    const auto page = whole(data, "IFD", 0), count = whole(data, "PlaneCount", 0);
    stack.runs.push_back({page.value_or(0), whole(data, "FirstZ", 0).value_or(0), whole(data, "FirstC", 0).value_or(0),
                          whole(data, "FirstT", 0).value_or(0), count || !page ? count : 1});
    if (const pugi::xml_node file = child(data, "UUID"))
      files.emplace_back(*file.child_value() != '\0' ? file.child_value() : file.attribute("FileName").value());
  }
  check_files(root, files);
  if (!pixels) corrupt("its OME-XML has no Pixels");
  if (stack.runs.empty()) stack.runs.emplace_back();
  stack.format = "OME-TIFF";
  stack.width = size_of(pixels, "SizeX");
  stack.height = size_of(pixels, "SizeY");
  stack.slices = size_of(pixels, "SizeZ");
  stack.channels = size_of(pixels, "SizeC");
  stack.times = size_of(pixels, "SizeT");
  const std::string_view order = pixels.attribute("DimensionOrder").value();
  std::string letters(order.substr(std::min<std::size_t>(order.size(), 2)));
  std::ranges::sort(letters);
  if (!order.starts_with("XY") || letters != "CTZ") corrupt("its OME-XML has no DimensionOrder such as XYZCT");
  stack.order = order.substr(2);
  stack.spacing_mm = {spacing_of(pixels, "PhysicalSizeX"), spacing_of(pixels, "PhysicalSizeY"),
                      spacing_of(pixels, "PhysicalSizeZ")};
  check_planes(stack);
  return stack;
}

TiffStack read_imagej(std::string_view text) {
  TiffStack stack;
  stack.format = "ImageJ stack";
  stack.counts_planes = true;
  int images = 1;
  double spacing = 1;  // ImageJ leaves it out if it is 1
  const std::array<std::pair<std::string_view, int*>, 4> counts{
      {{"images", &images}, {"channels", &stack.channels}, {"slices", &stack.slices}, {"frames", &stack.times}}};
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, equals), value = line.substr(equals + 1);
    for (const auto& [name, count] : counts) {
      if (key != name) continue;
      const auto number = number_of<int>(value);
      if (!number || *number < 1)
        corrupt("in its description, ImageJ's number of " + std::string(name) + " is no whole number from 1 on");
      *count = *number;
    }
    if (key == "spacing") spacing = std::abs(number_of<double>(value).value_or(0));
    if (key == "unit") stack.resolution_unit_mm = millimetres_of(value);
  }
  check_planes(stack);
  const std::int64_t planes = std::int64_t{stack.channels} * stack.slices * stack.times;
  if (planes == 1) stack.slices = images;
  if (planes > 1 && planes != images)
    corrupt("in its description, ImageJ names " + std::to_string(images) + " images, but " +
            std::to_string(stack.channels) + " channels, " + std::to_string(stack.slices) + " slices and " +
            std::to_string(stack.times) + " points in time");
  check_planes(stack);
  stack.spacing_mm[2] = std::isfinite(spacing) ? spacing * stack.resolution_unit_mm : 0;
  return stack;
}

}  // namespace

int TiffStack::planes_of_channels(int samples) const {
  if (counts_planes) return channels;
  if (channels <= samples) return 1;
  if (channels % samples != 0)
    corrupt(std::string("an ") + format + " with " + std::to_string(channels) + " channels, but " +
            std::to_string(samples) + " of them in a page");
  return channels / samples;
}

std::vector<int> TiffStack::pages(int time, int planes_of_channels) const {
  if (time >= times)
    throw PictureError(Reason::unsupported_format, std::string("this ") + format + " has " + std::to_string(times) +
                                                       (times == 1 ? " point" : " points") +
                                                       " in time, so there is no point " + std::to_string(time) +
                                                       "; they count from 0");
  const auto sides = [&] {
    std::array<std::int64_t, 3> all{};
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = order[i] == 'Z' ? slices : order[i] == 'C' ? planes_of_channels : times;
    return all;
  }();
  const std::int64_t planes = sides[0] * sides[1] * sides[2];
  const auto wrong = [&](const std::string& what) {
    corrupt("it has " + std::to_string(planes) + " planes, but TiffData in its OME-XML " + what);
  };
  std::vector<int> pages(static_cast<std::size_t>(slices) * static_cast<std::size_t>(planes_of_channels), -1);
  std::int64_t given = 0;
  for (const Run& run : runs) {
    // Some programs count the channels of a page one by one.
    const int channel = run.c < planes_of_channels ? run.c : run.c / (channels / planes_of_channels);
    if (run.z >= slices || channel >= planes_of_channels || run.t >= times) wrong("names one that is none of them");
    std::int64_t first = 0;
    for (std::size_t i = sides.size(); i-- > 0;)
      first = first * sides[i] + (order[i] == 'Z' ? run.z : order[i] == 'C' ? channel : run.t);
    const std::int64_t count = run.count ? *run.count : planes - first;
    given += count;
    if (count > planes - first || given > planes) wrong("names more, or one of them twice");
    if (run.page > std::numeric_limits<int>::max() - count) wrong("names a page that no file has");
    for (std::int64_t i = 0; i < count; ++i) {
      std::array<std::int64_t, 3> at{};  // Z, C and T
      std::int64_t rest = first + i;
      for (std::size_t axis = 0; axis < sides.size(); rest /= sides[axis++])
        at[order[axis] == 'Z' ? 0 : order[axis] == 'C' ? 1 : 2] = rest % sides[axis];
      if (at[2] != time) continue;
      int& page = pages[static_cast<std::size_t>(at[0] * planes_of_channels + at[1])];
      if (page != -1 && page != run.page + static_cast<int>(i)) wrong("names one of them twice");
      page = run.page + static_cast<int>(i);
    }
  }
  if (std::ranges::find(pages, -1) != pages.end()) wrong("gives some of them no page");
  return pages;
}

std::optional<TiffStack> read_tiff_stack(std::string_view description, std::int64_t memory_bytes) {
  if (description.starts_with("ImageJ=")) return read_imagej(description);
  const std::size_t begin = description.starts_with("\xEF\xBB\xBF") ? 3 : 0;  // a byte order mark
  const std::size_t first = description.find_first_not_of(" \t\r\n", begin);
  if (first == std::string_view::npos || description[first] != '<') return std::nullopt;
  const auto has = [&](std::string_view word) { return description.find(word) != std::string_view::npos; };
  if (!has("<OME") && !has(":OME")) return std::nullopt;
  return read_ome(description.substr(first), memory_bytes);
}

}  // namespace millrace
