#include "io/input/source_inputs.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/json.hpp"
#include "io/files/files.hpp"
#include "io/files/json_writer.hpp"
#include "io/files/source_names.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A folder or a glob. The walk begins with the first next(): check_plan() makes a source only to describe it.
class WalkInput final : public Input {
 public:
  WalkInput(FolderWalk::Options options, bool follow_dirs, ScanCounts& counts, std::stop_token stop)
      : Input(options.folder), options_(std::move(options)), counts_(counts), stop_(std::move(stop)) {
    options_.follow_dirs = follow_dirs;
    struct stat status {};
    if (::stat(options_.folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
      throw InputError("'" + display_name(options_.folder) + "' is not a folder, so it cannot be searched for '" +
                       display_name(options_.pattern ? options_.pattern->text() : "") + "'");
    }
  }

  Step next(ListedItem& item) override {
    if (!walk_) walk_.emplace(options_, counts_, stop_);
    item = {};
    return walk_->next(item.path) ? Step::item : Step::end;
  }

  json description() const override {
    json text{{"folder", json_bytes(base())}, {"follow_dirs", options_.follow_dirs}};
    if (options_.pattern) text["pattern"] = json_bytes(options_.pattern->text());
    return text;
  }

 private:
  FolderWalk::Options options_;
  ScanCounts& counts_;
  std::stop_token stop_;
  std::optional<FolderWalk> walk_;
};

class FileInput final : public Input {
 public:
  FileInput(std::string folder, std::string name) : Input(std::move(folder)), name_(std::move(name)) {}
  Step next(ListedItem& item) override {
    if (std::exchange(given_, true)) return Step::end;
    item = {name_, {}, {}, 0};
    return Step::item;
  }
  json description() const override { return {{"file", json_bytes(join_path(base(), name_))}}; }

 private:
  std::string name_;
  bool given_ = false;
};

enum class ListKind { text, csv, jsonl };

class ListInput final : public Input {
 public:
  ListInput(std::string base, std::string path, ListKind kind, bool nul_separated)
      : Input(std::move(base)), path_(std::move(path)), kind_(kind), nul_separated_(nul_separated) {}

  Step next(ListedItem& item) override {
    if (!list_) list_ = open();
    return list_->next(item);
  }

  json description() const override {
    return {{"list", json_bytes(path_)}, {"root", json_bytes(base())}, {"nul_separated", nul_separated_}};
  }

  /// Reads the file a second time, so a list must be a regular file.
  std::string content_hash() const override {
    try {
      return xxh3_64_file_hex(path_);
    } catch (const StorageError& error) {
      throw InputError(error.what());
    }
  }

 private:
  std::unique_ptr<ItemList> open() const {
    const std::string name = "'" + display_name(path_) + "'";
    if (kind_ == ListKind::text) {
      const char delimiter = nul_separated_ ? '\0' : '\n';
      return text_list(std::make_unique<LineReader>(path_, LineReader::Options{name, delimiter, list_line_limit, {}}),
                       nul_separated_);
    }
    auto lines = std::make_unique<LineReader>(path_, LineReader::Options{name, '\n', manifest_line_limit, {}});
    return kind_ == ListKind::csv ? csv_manifest(std::move(lines)) : jsonl_manifest(std::move(lines));
  }

  std::string path_;
  ListKind kind_;
  bool nul_separated_;
  std::unique_ptr<ItemList> list_;
};

class StdinInput final : public Input {
 public:
  StdinInput(std::string base, const StdinOptions& options, bool nul_separated, const std::stop_token& stop)
      : Input(std::move(base)), nul_separated_(nul_separated) {
    const char delimiter = nul_separated ? '\0' : '\n';
    list_ = text_list(std::make_unique<LineReader>(
                          options.descriptor,
                          LineReader::Options{"the list on stdin", delimiter, list_line_limit, options.idle}, stop),
                      nul_separated);
  }
  Step next(ListedItem& item) override { return list_->next(item); }
  json description() const override {
    return {{"list", "-"}, {"root", json_bytes(base())}, {"nul_separated", nul_separated_}};
  }

 private:
  bool nul_separated_;
  std::unique_ptr<ItemList> list_;
};

/// The path without links and "..". A plan compares this text, so all spellings of a folder must give the same.
std::string resolved(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  if (error) throw InputError("cannot use '" + display_name(path) + "': " + error.message());
  return canonical.native();
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::optional<ListKind> list_kind(const std::string& path) {
  const std::string extension = extension_of(path);
  if (extension == "txt" || extension == "lst") return ListKind::text;
  if (extension == "csv") return ListKind::csv;
  if (extension == "jsonl" || extension == "ndjson") return ListKind::jsonl;
  return {};
}

std::unique_ptr<Input> make_file_input(const std::string& text, const SourceSpec& spec, const struct stat& status) {
  const auto kind = list_kind(text);
  // Only the folder is resolved: a link to a picture keeps its own name.
  if (!kind) return std::make_unique<FileInput>(resolved(parent_of(text)), text.substr(text.rfind('/') + 1));
  if (!S_ISREG(status.st_mode)) {
    throw InputError("the list '" + display_name(text) + "' is not a regular file: pipe it into '--input -' instead");
  }
  const std::string path = resolved(text);
  const std::string usual = *kind == ListKind::text ? current_folder() : parent_of(path);
  return std::make_unique<ListInput>(spec.list_root ? resolved(*spec.list_root) : usual, path, *kind,
                                     *kind == ListKind::text && spec.nul_separated);
}

}  // namespace

std::unique_ptr<Input> make_input(const std::string& text, const SourceSpec& spec, const StdinOptions& stdin_options,
                                  ScanCounts& counts, const std::stop_token& stop) {
  if (text.empty()) throw InputError("an input is empty text: name a folder, file, list or pattern");
  if (text == "-") {
    return std::make_unique<StdinInput>(spec.list_root ? resolved(*spec.list_root) : current_folder(), stdin_options,
                                        spec.nul_separated, stop);
  }
  struct stat status {};
  // Before patterns: a file may have wildcards in its name.
  if (::stat(text.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode)) return make_file_input(text, spec, status);
    return std::make_unique<WalkInput>(FolderWalk::Options{resolved(text), {}, false, spec.excluded}, spec.follow_dirs,
                                       counts, stop);
  }
  const int error = errno;
  struct stat link {};
  const bool is_dangling = ::lstat(text.c_str(), &link) == 0;
  if (!has_wildcards(text) || is_dangling) {
    throw InputError("the input '" + display_name(text) + "' cannot be used: " +
                     (is_dangling && error == ENOENT ? "it is a link to nothing" : std::strerror(error)) +
                     (text.starts_with('/') ? "" : "; relative paths start from " + display_name(current_folder())));
  }
  const GlobParts parts = split_glob(text);
  try {
    return std::make_unique<WalkInput>(FolderWalk::Options{resolved(parts.folder.empty() ? "." : parts.folder),
                                                           Glob(parts.pattern), false, spec.excluded},
                                       spec.follow_dirs, counts, stop);
  } catch (const std::invalid_argument& bad) {
    throw InputError(bad.what());
  }
}

std::string current_folder() {
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  if (error) throw InputError("the current folder cannot be found: " + error.message() + "; change to one that exists");
  return folder.native();
}

std::string join_path(std::string_view folder, std::string_view path) {
  if (path.starts_with('/') || folder.empty()) return std::string(path);
  std::string joined(folder);
  if (!joined.ends_with('/')) joined += '/';
  return joined += path;
}

std::string clean_path(const std::string& path) {
  const std::string framed = "/" + path + "/";
  const bool clean = path.find("//") == std::string::npos && framed.find("/./") == std::string::npos &&
                     framed.find("/../") == std::string::npos && !(path.size() > 1 && path.ends_with('/'));
  if (clean) return path;
  fs::path result = path;
  if (framed.find("/../") != std::string::npos) {
    std::error_code error;
    const fs::path whole = fs::weakly_canonical(result.parent_path(), error);
    result = (error ? result.parent_path() : whole) / result.filename();
  }
  std::string text = result.lexically_normal().native();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

std::string relative_below(std::string_view root, const std::string& path) {
  const std::size_t length = root == "/" ? 0 : root.size();
  if (path.size() > length + 1 && path.starts_with(root) && path[length] == '/') return path.substr(length + 1);
  return path;
}

json json_bytes(std::string_view bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string hex;  // with the lossy text alone, different names would be equal
  for (const char c : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    hex += digits[static_cast<unsigned char>(c) >> 4U];
    hex += digits[static_cast<unsigned char>(c) & 15U];
  }
  return {{"text", to_utf8_lossy(bytes)}, {"bytes_hex", hex}};
}

std::optional<std::string> bytes_from_json(const json& text) {
  if (text.is_string()) return text.get<std::string>();
  const json hex = text.is_object() ? text.value("bytes_hex", json()) : json();
  if (!hex.is_string()) return std::nullopt;
  const auto& digits = hex.get_ref<const std::string&>();
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    unsigned value = 0;
    const char* const end = digits.data() + i + 2;
    if (std::from_chars(digits.data() + i, end, value, 16).ptr != end) return std::nullopt;
    bytes += static_cast<char>(value);
  }
  return digits.size() % 2 == 0 ? std::optional(bytes) : std::nullopt;
}

}  // namespace millrace
