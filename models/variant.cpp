#include "models/variant.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "io/files/files.hpp"
#include "models/yaml_section.hpp"

namespace millrace {
namespace {

constexpr const char* yaml_name = "variant.yaml";
constexpr int schema_version = 1;
constexpr std::uintmax_t max_yaml_bytes = 1 << 20;
constexpr const char* compile_again = "compile the package again";

std::string read_text(const std::filesystem::path& file) {
  std::error_code error;
  // Before it is read, so that a huge file does not fill the memory.
  if (std::filesystem::file_size(file, error) > max_yaml_bytes)
    throw VariantError(
        fmt::format("{}: {}; {}", file.string(), error ? error.message() : "is larger than 1 MB", compile_again));
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw VariantError(fmt::format("{}: cannot be read; check its permissions", file.string()));
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A library is machine code, so nothing opens it before its hash is known to be the one in variant.yaml.
void check_library(CompiledCall& call) {
  std::error_code error;
  const std::string file = call.library.string();
  if (!std::filesystem::is_regular_file(call.library, error))
    throw VariantError(fmt::format("{}: is missing, but variant.yaml lists it; {}", file, compile_again));
  if (const std::string actual = sha256_file_hex(file); actual != call.sha256)
    throw VariantError(
        fmt::format("{}: sha256 is {}, but variant.yaml says {}; {}", file, actual, call.sha256, compile_again));
  call.bytes = static_cast<std::int64_t>(std::filesystem::file_size(call.library));
}

void read_methods(YamlSection section, const Package& package, Variant& variant) {
  for (const std::string& name : section.keys()) {
    const auto method = std::find_if(package.methods.begin(), package.methods.end(),
                                     [&](const Method& one) { return one.name == name; });
    if (method == package.methods.end()) section.fail(name, "the package has no such method");
    YamlSection calls = section.section(name);
    auto& compiled = variant.methods[name];
    for (const std::string& rows : calls.keys()) {
      CompiledCall call;
      const bool number =
          !rows.empty() && rows.size() <= 4 && rows.find_first_not_of("0123456789") == std::string::npos;
      call.rows = number ? std::stoi(rows) : 0;
      if (call.rows < 1 || call.rows > method->maximum)
        calls.fail(rows, fmt::format("expected a number of rows from 1 to {}", method->maximum));
      YamlSection one = calls.section(rows);
      const std::string file = one.text("file");
      if (file == "." || file == ".." || file.find('/') != std::string::npos)
        one.fail("file", fmt::format("'{}' is not a plain file name", file));
      call.library = variant.folder / file;
      call.sha256 = one.text("sha256");
      one.close();
      compiled.push_back(std::move(call));
    }
    calls.close();
    std::sort(compiled.begin(), compiled.end(), [](const auto& a, const auto& b) { return a.rows < b.rows; });
  }
  section.close();
}

Variant parse(const std::filesystem::path& folder, const std::string& file, const std::string& text,
              const Package& package) {
  YAML::Node node;
  try {
    node = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw VariantError(fmt::format("{}:{}: is not valid YAML: {}", file, error.mark.line + 1, error.msg));
  }
  if (!node.IsMap()) throw VariantError(fmt::format("{}: expected a mapping of keys to values", file));
  YamlSection root(node, file, "");
  if (root.number("schema", 1, 1'000'000) != schema_version)
    root.fail("schema", fmt::format("this program reads schema {}; {}", schema_version, compile_again));
  Variant variant;
  variant.folder = folder;
  (void)root.text("package");  // for people
  variant.package = root.text("fingerprint");
  if (variant.package != package.fingerprint)
    root.fail("fingerprint", fmt::format("it was compiled from another package ({:.16}) than {} ({:.16}); {}",
                                         variant.package, package.folder.string(), package.fingerprint, compile_again));
  (void)root.text("source");  // the hash of model.ep.pt2, which a run does not open
  variant.machine =
      root.choice<std::string>("device", {{"cpu", "cpu "}, {"cuda", "cuda "}}) + root.text("instructions");
  std::istringstream flags(root.text("cpu_flags"));
  variant.cpu_flags.assign(std::istream_iterator<std::string>(flags), {});
  variant.precision = root.choice<Precision>(
      "precision", {{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}});
  variant.torch = root.text("torch");
  for (const char* key : {"gpu", "compiler", "inductor", "inputs"}) (void)root.has(key);  // for people
  variant.gated = root.has("gate") && root.text("gate") != "ungated";
  read_methods(root.section("methods"), package, variant);
  root.close();
  return variant;
}

}  // namespace

std::string Variant::id() const { return folder.filename().string() + " " + fingerprint.substr(0, 16); }

std::vector<std::string> cpu_flags(const std::filesystem::path& file) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(std::min(line.find(':') + 1, line.size())));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

std::vector<std::filesystem::path> variant_places(const Package& package) {
  // Without a slash at the end, which lexically_normal() keeps.
  std::string folder = std::filesystem::absolute(package.folder).lexically_normal().string();
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  std::vector<std::filesystem::path> places{folder + ".variants"};
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::filesystem::path root;
  if (cache != nullptr && *cache != 0) {
    root = cache;
  } else if (home != nullptr && *home != 0) {
    root = std::filesystem::path(home) / ".cache";
  }
  if (!root.empty()) places.push_back(root / "millrace" / "variants" / package.fingerprint.substr(0, 16));
  return places;
}

Variant read_variant(const std::filesystem::path& folder, const Package& package) {
  const auto file = folder / yaml_name;
  try {
    const std::string text = read_text(file);
    Variant variant = parse(folder, file.string(), text, package);
    variant.fingerprint = sha256_hex(text);
    return variant;
  } catch (const VariantError&) {
    throw;
  } catch (const PackageError& error) {  // from YamlSection
    throw VariantError(error.what());
  } catch (const std::system_error& error) {
    throw VariantError(fmt::format("{}: cannot be read: {}", folder.string(), error.code().message()));
  }
}

void check_libraries(Variant& variant) {
  try {
    for (auto& [name, calls] : variant.methods) {
      for (CompiledCall& call : calls) check_library(call);
    }
  } catch (const std::system_error& error) {
    throw VariantError(fmt::format("{}: cannot be read: {}", variant.folder.string(), error.code().message()));
  }
}

std::int64_t loaded_bytes(const Package& package) {
  std::int64_t bytes = package.file_bytes();
  if (package.variant == nullptr) return bytes;
  for (const auto& [name, calls] : package.variant->methods) {
    for (const CompiledCall& call : calls) bytes += call.bytes;
  }
  if (package.variant->methods.size() < package.methods.size()) return bytes;
  for (const PackageFile& file : package.files) {
    if (package.folder / file.name == package.torchscript()) bytes -= file.bytes;
  }
  return bytes;
}

std::optional<std::string> misfit(const Variant& variant, const VariantNeeds& needs) {
  if (variant.machine != needs.machine)
    return fmt::format("it is for {}, and this run uses {}", variant.machine, needs.machine);
  if (variant.precision != needs.precision) return "it has another precision than this run";
  std::vector<std::string> missing;
  for (const std::string& flag : variant.cpu_flags) {
    if (std::find(needs.cpu_flags.begin(), needs.cpu_flags.end(), flag) == needs.cpu_flags.end())
      missing.push_back(flag);
  }
  if (!missing.empty()) return fmt::format("this CPU does not have {}", fmt::join(missing, ", "));
  return std::nullopt;
}

std::vector<std::filesystem::path> variant_folders(const std::vector<std::filesystem::path>& places) {
  std::vector<std::filesystem::path> folders;
  for (const auto& place : places) {
    const std::size_t before = folders.size();
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(place, error)) {
      if (std::filesystem::is_regular_file(entry.path() / yaml_name, error)) folders.push_back(entry.path());
    }
    std::sort(folders.begin() + static_cast<std::ptrdiff_t>(before), folders.end());
  }
  return folders;
}

}  // namespace millrace
