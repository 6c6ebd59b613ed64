#include "models/package.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <system_error>

#include "base/orientation.hpp"
#include "gpu/windows.hpp"
#include "io/files/files.hpp"
#include "models/declared_methods.hpp"
#include "models/sniff.hpp"
#include "models/yaml_section.hpp"

namespace millrace {
namespace {

constexpr int schema_version = 1;
constexpr std::uintmax_t max_yaml_bytes = 1 << 20;
constexpr int max_side = 8192;
constexpr std::size_t max_original_bytes = 200;

// Throws an error that says what `folder` is, since it is no package.
[[noreturn]] void refuse_folder(const std::filesystem::path& folder) {
  std::error_code error;
  const auto status = std::filesystem::status(folder, error);
  if (!std::filesystem::exists(status))
    throw PackageError(fmt::format("{}: no such folder; name a model package, a folder with model.yaml and model.ts",
                                   folder.string()));
  if (!std::filesystem::is_regular_file(status))
    throw PackageError(fmt::format("{}: has no model.yaml; a model package is a folder with model.yaml and model.ts",
                                   folder.string()));
  const FileKind kind = sniff(folder);
  if (kind == FileKind::torchscript)
    throw PackageError(
        fmt::format("{}: is a TorchScript file, not a model package; put it into a folder as model.ts, next to a "
                    "model.yaml that describes it",
                    folder.string()));
  throw PackageError(fmt::format("{}: expected a model package (a folder with model.yaml), but this file is {}; {}",
                                 folder.string(), look_of(kind), advice_for(kind)));
}

std::string read_yaml(const std::filesystem::path& file) {
  // Before it is read, so that a huge file does not fill the memory.
  if (std::filesystem::file_size(file) > max_yaml_bytes)
    throw PackageError(
        fmt::format("{}: is larger than 1 MB, so it cannot be a model.yaml; export the package again", file.string()));
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw PackageError(fmt::format("{}: cannot be read; check its permissions", file.string()));
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::array<float, 3> three(YamlSection& section, const std::string& key) {
  const auto values = section.reals(key, 3);
  return {values[0], values[1], values[2]};
}

InputSpec read_input(YamlSection section) {
  InputSpec input;
  input.width = section.number("width", 1, max_side);
  input.height = section.number("height", 1, max_side);
  input.bgr = section.choice<bool>("colour", {{"rgb", false}, {"bgr", true}});
  input.scale = section.real("scale");
  input.mean = three(section, "mean");
  input.std = three(section, "std");
  if (std::any_of(input.std.begin(), input.std.end(), [](float value) { return value <= 0; }))
    section.fail("std", "expected numbers above 0");
  input.mode = section.choice<ResizeMode>("resize", {{"letterbox", ResizeMode::letterbox},
                                                     {"longest_side", ResizeMode::longest_side},
                                                     {"stretch", ResizeMode::stretch},
                                                     {"centre_crop", ResizeMode::centre_crop}});
  input.filter = section.choice<ResizeFilter>(
      "filter",
      {{"cv2_linear", ResizeFilter::cv2_linear}, {"pil_bilinear_antialias", ResizeFilter::pil_bilinear_antialias}});
  if (input.mode == ResizeMode::letterbox) {
    input.rounding = section.choice<SideRounding>(
        "rounding", {{"down", SideRounding::down}, {"half_even", SideRounding::half_even}});
    input.placement =
        section.choice<Placement>("padding", {{"top_left", Placement::top_left}, {"centred", Placement::centred}});
  } else {
    section.refuse("rounding", "has no meaning unless resize is letterbox; remove it");
    section.refuse("padding", "has no meaning unless resize is letterbox; remove it");
  }
  if (input.mode == ResizeMode::centre_crop) {
    input.shorter_side = section.number("shorter_side", 1, max_side);
    if (input.filter != ResizeFilter::pil_bilinear_antialias)
      section.fail("filter", "must be pil_bilinear_antialias when resize is centre_crop");
  } else {
    section.refuse("shorter_side", "has no meaning unless resize is centre_crop; remove it");
  }
  if (input.mode == ResizeMode::stretch) {
    section.refuse("pad", "has no meaning when resize is stretch; remove it");
  } else {
    input.pad = three(section, "pad");
  }
  section.close();
  return input;
}

/// How values become the input, but for the mean and deviation of constants.
Scaling read_scaling(YamlSection& section) {
  Scaling scaling;
  if (section.has("percentiles")) {
    scaling.kind = Scaling::Kind::percentiles;
    const auto two = section.reals<double>("percentiles", 2);
    if (!(two[0] >= 0 && two[0] < two[1] && two[1] <= 100))
      section.fail("percentiles", "expected two numbers from 0 to 100, the lower one first");
    scaling.percentiles = {two[0], two[1]};
    scaling.clip_to_percentiles = section.choice<bool>("clip_to_percentiles", {{"yes", true}, {"no", false}});
    section.refuse("clip", "has no meaning with percentiles; remove it, or use clip_to_percentiles");
    section.refuse("zscore", "contradicts percentiles; remove one of them");
  } else {
    section.refuse("clip_to_percentiles", "has no meaning without percentiles; remove it");
    if (section.has("clip")) {
      const auto bounds = section.reals("clip", 2);
      if (bounds[0] >= bounds[1]) section.fail("clip", "expected two numbers, the lower one first");
      scaling.clip = {bounds[0], bounds[1]};
    }
    if (section.has("zscore")) {
      scaling.kind = Scaling::Kind::zscore;
      scaling.of = section.choice<Scaling::Of>(
          "zscore",
          {{"all", Scaling::Of::all}, {"nonzero", Scaling::Of::nonzero}, {"nonzero_box", Scaling::Of::nonzero_box}});
    }
  }
  if (scaling.kind == Scaling::Kind::constant) {
    scaling.scale = section.real("scale");
  } else {
    for (const char* key : {"scale", "mean", "std"})
      section.refuse(key, "has no meaning with zscore or percentiles; remove it");
  }
  return scaling;
}

/// The scaling of one channel, with keys of its own.
Scaling read_channel(YamlSection section) {
  section.refuse("channel_wise", "has no meaning for one channel, which has its own statistics; remove it");
  Scaling scaling = read_scaling(section);
  if (scaling.kind == Scaling::Kind::constant) {
    scaling.mean = section.real("mean");
    scaling.std = section.real("std");
    if (scaling.std <= 0) section.fail("std", "expected a number above 0");
  }
  section.close();
  return scaling;
}

/// The key `channels`: a list with the scaling of each channel. Or a number; then read_alike() finds the scalings.
void read_channels(YamlSection& section, Package& package) {
  if (section.entries("channels") == 0) {
    package.channels.resize(static_cast<std::size_t>(section.number("channels", 1, max_channels)));
    return;
  }
  for (YamlSection& channel : section.sections("channels", max_channels))
    package.channels.push_back(read_channel(std::move(channel)));
  package.channel_wise = true;
  for (const char* key : {"scale", "mean", "std", "clip", "zscore", "percentiles", "clip_to_percentiles"})
    section.refuse(key, "contradicts the list of channels, which have their own keys; move it into the list");
  section.refuse("channel_wise", "has no meaning with a list of channels, which have their own statistics; remove it");
}

/// The scaling of channels that differ in mean and deviation at most.
void read_alike(YamlSection& section, bool volume, Package& package) {
  std::vector<Scaling>& channels = package.channels;
  channels.assign(channels.size(), read_scaling(section));
  const bool of_item = channels.front().kind != Scaling::Kind::constant;
  if (of_item && (!volume || channels.size() > 1)) {
    package.channel_wise = section.choice<bool>("channel_wise", {{"yes", true}, {"no", false}});
  } else {
    section.refuse("channel_wise", of_item ? "has no meaning for volumes with one channel; remove it"
                                           : "has no meaning without zscore or percentiles; remove it");
  }
  if (of_item) return;
  const auto means = section.reals("mean", channels.size()), deviations = section.reals("std", channels.size());
  if (std::ranges::any_of(deviations, [](float value) { return value <= 0; }))
    section.fail("std", "expected numbers above 0");
  for (std::size_t i = 0; i < channels.size(); ++i) channels[i].mean = means[i], channels[i].std = deviations[i];
}

/// The input of a model of windows: of pictures in RGB or with the channels of the file, or of volumes with `depth`.
InputSpec read_windows(YamlSection section, Package& package) {
  InputSpec input;
  input.width = section.number("width", 1, max_side);
  input.height = section.number("height", 1, max_side);
  if (section.has("depth")) {
    input.depth = section.number("depth", 1, max_side);
    input.columns_first = section.choice<bool>("axes", {{"xyz", true}, {"zyx", false}});
    section.refuse("colour", "has no meaning for volumes; remove it");
    section.refuse("mpp", "has no meaning for volumes; remove it, and use spacing");
    if (section.has("channels")) {
      read_channels(section, package);
    } else {
      package.channels.resize(1);
    }
    if (section.has("orientation")) {
      package.orientation = section.text("orientation");
      if (!is_orientation(package.orientation))
        section.fail("orientation", "expected three letters, one of R and L, one of A and P, one of S and I, as RAS");
    }
    if (section.has("spacing")) {
      const auto sides = section.reals<double>("spacing", 3);
      if (std::ranges::any_of(sides, [](double side) { return side < 0; }))
        section.fail("spacing", "expected three numbers of mm, or 0 for an axis that is not resampled");
      std::ranges::copy(sides, package.spacing_mm.begin());
      if (section.has("scaled"))
        package.scaled_before_resampling =
            section.choice<bool>("scaled", {{"before_resampling", true}, {"after_resampling", false}});
    } else {
      section.refuse("scaled", "has no meaning without spacing; remove it");
    }
  } else {
    section.refuse("axes", "has no meaning without depth; remove it");
    section.refuse("orientation", "has no meaning without depth; remove it");
    section.refuse("scaled", "has no meaning without depth; remove it");
    section.refuse("spacing", "has no meaning without depth; remove it, and use mpp for slides");
    // A list may also scale the planes of RGB.
    const bool listed = section.entries("channels") > 0;
    input.keeps_values = section.has("channels") && !(listed && section.has("colour"));
    if (input.keeps_values) {
      section.refuse("colour", "contradicts channels; remove one of them");
      section.refuse("mpp", "contradicts channels, because only RGB of 8 bits is resampled; remove one of them");
      read_channels(section, package);
    } else {
      input.bgr = section.choice<bool>("colour", {{"rgb", false}, {"bgr", true}});
      if (listed) read_channels(section, package);
      if (listed && package.channels.size() != 3)
        section.fail("channels", "expected a list of 3 mappings, for the planes of colour");
      package.channels.resize(3);
      if (section.has("mpp")) {
        package.mpp = section.real<double>("mpp");
        if (!(package.mpp > 0 && package.mpp <= 1000))
          section.fail("mpp", "expected micrometres above 0, and up to 1000");
      }
    }
  }
  if (section.entries("channels") == 0) read_alike(section, input.depth > 0, package);
  for (const char* key : {"resize", "filter", "rounding", "padding", "shorter_side", "pad"})
    section.refuse(key, "has no meaning for a model of windows, which are not resized; remove it");
  section.close();
  return input;
}

const Task& read_task(YamlSection& root) {
  std::vector<std::pair<std::string, const Task*>> choices;
  for (const Task& task : task_table()) choices.emplace_back(task.name, &task);
  return *root.choice<const Task*>("task", choices);
}

// Reads the section `output` and the other keys of the task.
void read_output(YamlSection& root, Package& package) {
  YamlSection output = root.section("output");
  for (const OutputKey& key : package.task->output) {
    if (key.words.empty()) {
      package.output[key.name] = key.count == 1 ? std::vector<int>{output.number(key.name, key.lowest, key.highest)}
                                                : output.numbers(key.name, key.count, key.lowest, key.highest);
      continue;
    }
    std::vector<std::pair<std::string, int>> words;
    for (const std::string& word : key.words) words.emplace_back(word, static_cast<int>(words.size()));
    package.output[key.name] = {output.choice<int>(key.name, words)};
  }
  package.task->read(root, output, package);
  // After read(), which may ask for more keys of this section.
  output.close();
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Checks the kind before the hash: "this file is a Git LFS pointer" helps more than two hashes.
void check_file(const std::filesystem::path& folder, PackageFile& file, CheckFiles checked) {
  if (checked == CheckFiles::of_runs && file.name.ends_with(".pt2")) return;
  const auto path = folder / file.name;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw PackageError(fmt::format("{}: is {}, but model.yaml lists it; fetch or export the package again",
                                   path.string(),
                                   std::filesystem::exists(path, error) ? "not a regular file" : "missing"));
  const FileKind kind = sniff(path);
  const bool model = file.name.ends_with(".ts");
  if (kind == FileKind::empty || kind == FileKind::git_lfs_pointer || kind == FileKind::html ||
      kind == FileKind::broken_zip || (model && kind != FileKind::torchscript))
    throw PackageError(fmt::format("{}: {} {}; {}", path.string(),
                                   model ? "expected a TorchScript model, but this file is" : "this file is",
                                   look_of(kind), advice_for(kind)));
  const std::string actual = sha256_file_hex(path.string());
  if (actual != file.sha256)
    throw PackageError(
        fmt::format("{}: sha256 is {}, but model.yaml says {}; the file was changed or damaged, so fetch or export "
                    "the package again",
                    path.string(), actual, file.sha256));
  file.bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
}

void read_files(YamlSection& root, Package& package) {
  for (auto& [name, hash] : root.pairs("files")) {
    // A path could lead out of the package's folder.
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
      root.fail("files", fmt::format("'{}' is not a plain file name; put the file into the package's folder", name));
    if (!is_sha256(hash))
      root.fail("files",
                fmt::format("{}: expected a sha256 of 64 lower-case hexadecimal digits, got '{}'", name, hash));
    package.files.push_back({name, hash, 0});
  }
  if (std::none_of(package.files.begin(), package.files.end(),
                   [](const PackageFile& file) { return file.name == "model.ts"; }))
    root.fail("files", "model.ts is missing; add it with its sha256");
}

std::string not_a_mapping(const std::string& file) {
  const FileKind kind = sniff(file);
  if (kind == FileKind::unknown) return fmt::format("{}: expected a mapping of keys to values", file);
  return fmt::format("{}: expected a mapping of keys to values, but this file is {}; {}", file, look_of(kind),
                     advice_for(kind));
}

Package parse_package(const std::filesystem::path& folder, const std::string& file, const std::string& text) {
  YAML::Node node;
  try {
    node = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw PackageError(fmt::format("{}:{}: is not valid YAML: {}", file, error.mark.line + 1, error.msg));
  }
  if (!node.IsMap()) throw PackageError(not_a_mapping(file));
  YamlSection root(node, file, "");
  if (!root.has("schema")) root.fail("schema", fmt::format("is missing; expected {}", schema_version));
  // Any number, so that a package of a later schema gets this message and not one about a range.
  if (root.number("schema", 1, 1'000'000) != schema_version)
    root.fail(
        "schema",
        fmt::format("this program reads schema {}; export the package again, or use the program that it was made for",
                    schema_version));
  Package package;
  package.folder = folder;
  package.name = root.text("name");
  package.task = &read_task(root);
  package.architecture = root.text("architecture");
  if (root.has("original")) {
    package.original = root.text("original");
    if (package.original.size() > max_original_bytes)
      root.fail("original",
                fmt::format("has {} bytes; shorten it to at most {}", package.original.size(), max_original_bytes));
  }
  package.input =
      package.task->of_windows ? read_windows(root.section("input"), package) : read_input(root.section("input"));
  package.max_batch = root.number("max_batch", 1, 1024);
  read_output(root, package);
  // After input and output, from which the task derives the methods.
  set_methods(package);
  if (root.has("methods")) check_methods(root.section("methods"), package);
  package.licence = root.text("licence");
  if (root.has("quality")) package.quality = root.pairs("quality");
  read_files(root, package);
  root.close();
  return package;
}

}  // namespace

std::int64_t Package::file_bytes() const {
  return std::accumulate(files.begin(), files.end(), std::int64_t{0},
                         [](std::int64_t sum, const PackageFile& file) { return sum + file.bytes; });
}

const std::vector<int>& Package::numbers(std::string_view key) const {
  const auto found = output.find(key);
  if (found == output.end()) throw std::out_of_range(fmt::format("{}: has no output.{}", name, key));
  return found->second;
}

Package read_package(const std::filesystem::path& folder, CheckFiles checked) {
  try {
    const auto file = folder / "model.yaml";
    if (!std::filesystem::is_regular_file(file)) refuse_folder(folder);
    const std::string text = read_yaml(file);
    Package package = parse_package(folder, file.string(), text);
    // Of the text as it was read: a second read could find another file.
    package.fingerprint = sha256_hex(text);
    for (PackageFile& listed : package.files) check_file(folder, listed, checked);
    if (package.task->read_files != nullptr) package.task->read_files(package);
    return package;
  } catch (const std::system_error& error) {
    // From std::filesystem or sniff().
    throw PackageError(fmt::format("{}: cannot be read: {}", folder.string(), error.code().message()));
  }
}

}  // namespace millrace
