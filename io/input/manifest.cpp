#include "io/input/manifest.hpp"

#include <algorithm>
#include <cmath>

#include "base/json.hpp"
#include "io/files/base64.hpp"
#include "io/files/source_names.hpp"
#include "io/input/scan.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int deepest_nesting = 64;

[[noreturn]] void fail(const std::string& where, const std::string& what) { throw InputError(where + ": " + what); }

void drop_byte_order_mark(std::string& line, std::int64_t number) {
  if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
}

/// Other columns belong to the user. But boxes under a wrong name would be lost unnoticed.
void check_key(std::string_view key, const std::string& where) {
  if (key == "box" || key == "bbox" || key == "bboxes") {
    fail(where, "'" + std::string(key) + "' is not read: name it 'boxes' and write [[x, y, width, height], ...]");
  }
  if (key == "views") fail(where, "'views' is not read: name it 'view'");
}

void check_path(const std::string& path, const std::string& where) {
  if (path.empty()) fail(where, "the path is empty");
  if (path.find('\0') != std::string::npos) fail(where, "the path contains a NUL byte, which no file name can");
}

json parse_json(std::string_view text, const std::string& where, const std::string& what) {
  try {
    return json::parse(text, [&](int depth, json::parse_event_t, json&) {
      if (depth > deepest_nesting) fail(where, what + " is nested more than 64 deep");
      return true;
    });
  } catch (const json::exception& error) {
    // The message of nlohmann repeats the input, which may be long and contain anything.
    const std::string why =
        dynamic_cast<const json::out_of_range*>(&error) != nullptr ? " (a number out of range)" : "";
    fail(where, what + " is not valid JSON" + why + ": '" + display_name(text.substr(0, 60)) +
                    (text.size() > 60 ? "...'" : "'"));
  }
}

PromptBox parse_box(const json& box, const std::string& where, std::size_t number) {
  const std::string what = "box " + std::to_string(number);
  if (!box.is_array() || box.size() < 4 || box.size() > 5 ||
      !std::all_of(box.begin(), box.end(), [](const json& value) { return value.is_number(); })) {
    fail(where, what + " is not [x, y, width, height] or [x, y, width, height, class] in numbers");
  }
  PromptBox result{box[0].get<float>(), box[1].get<float>(), box[2].get<float>(), box[3].get<float>(), 0};
  // A number that is too large for float has become infinite.
  if (!std::isfinite(result.x) || !std::isfinite(result.y) || !std::isfinite(result.width) ||
      !std::isfinite(result.height)) {
    fail(where, what + " has a number out of range");
  }
  if (!(result.width > 0) || !(result.height > 0)) fail(where, what + " has a width or height that is not above 0");
  if (box.size() == 5) {
    const double class_id = box[4].get<double>();
    // Within this limit, the conversion to int is exact.
    if (class_id != std::floor(class_id) || class_id < 0 || class_id > 1e9) {
      fail(where, what + " has a class that is not a whole number from 0 to 1e9");
    }
    result.class_id = static_cast<int>(class_id);
  }
  return result;
}

std::vector<PromptBox> parse_boxes(const json& boxes, const std::string& where) {
  if (!boxes.is_array()) fail(where, "boxes is not a list of boxes [[x, y, width, height], ...]");
  std::vector<PromptBox> result;
  result.reserve(boxes.size());
  for (std::size_t i = 0; i < boxes.size(); ++i) result.push_back(parse_box(boxes[i], where, i + 1));
  return result;
}

class TextList final : public ItemList {
 public:
  TextList(std::unique_ptr<LineReader> lines, bool nul_separated)
      : lines_(std::move(lines)), nul_separated_(nul_separated) {}

  Step next(ListedItem& item) override {
    while (true) {
      const Step step = lines_->next(line_);
      if (step != Step::item) return step;
      if (!nul_separated_) drop_byte_order_mark(line_, lines_->line_number());
      if (!nul_separated_ && line_.ends_with('\r')) line_.pop_back();
      if (line_.empty()) continue;
      if (line_.find('\0') != std::string::npos) {
        fail(lines_->where(), "the path contains a NUL byte: a list separated by NULs needs -0");
      }
      item = {line_, {}, {}, lines_->line_number()};
      return Step::item;
    }
  }

 private:
  std::unique_ptr<LineReader> lines_;
  bool nul_separated_;
  std::string line_;
};

class CsvManifest final : public ItemList {
 public:
  explicit CsvManifest(std::unique_ptr<LineReader> lines) : lines_(std::move(lines)) {}

  Step next(ListedItem& item) override {
    if (columns_ == 0) {
      if (const Step step = next_row(); step != Step::item) return step;
      read_header();
    }
    if (const Step step = next_row(); step != Step::item) return step;
    if (fields_.size() != columns_) {
      fail(where(), std::to_string(fields_.size()) + " fields, but the header has " + std::to_string(columns_));
    }
    item = {fields_[path_], view_ ? fields_[*view_] : std::string(), {}, row_line_};
    check_path(item.path, where());
    if (boxes_ && !fields_[*boxes_].empty()) {
      item.boxes = parse_boxes(parse_json(fields_[*boxes_], where(), "boxes"), where());
    }
    return Step::item;
  }

 private:
  std::string where() const { return name_; }

  /// Reads lines until the quotes are balanced, because a quoted field may contain newlines.
  Step next_row() {
    do {
      if (const Step step = lines_->next(row_); step != Step::item) return step;
      row_line_ = lines_->line_number();
      // Messages name the first line of a row that has several.
      name_ = lines_->where();
      drop_byte_order_mark(row_, row_line_);
    } while (row_.empty() || row_ == "\r");
    // A quote inside a quoted field is doubled, so the number of quotes is even exactly where no field is open.
    auto quotes = std::count(row_.begin(), row_.end(), '"');
    while (quotes % 2 != 0) {
      const Step step = lines_->next(more_);
      if (step == Step::idle) continue;
      if (step == Step::end || row_.size() + more_.size() > manifest_line_limit) {
        fail(where(), "a quoted field that starts in this row is never closed");
      }
      quotes += std::count(more_.begin(), more_.end(), '"');
      row_ += '\n';
      row_ += more_;
    }
    if (row_.ends_with('\r')) row_.pop_back();
    split_row();
    return Step::item;
  }

  void split_row() {
    fields_.clear();
    std::size_t at = 0;
    while (true) {
      std::string& field = fields_.emplace_back();
      if (at < row_.size() && row_[at] == '"') {
        at = quoted_field(at + 1, field);
      } else {
        const std::size_t end = std::min(row_.find(',', at), row_.size());
        field = row_.substr(at, end - at);
        if (field.find('"') != std::string::npos) {
          fail(where(),
               "a quote inside a field that is not quoted: write the field as \"...\" with every quote doubled");
        }
        at = end;
      }
      if (at == row_.size()) return;
      if (row_[at] != ',') fail(where(), "text after the closing quote of a field: write a quote inside a field twice");
      ++at;
    }
  }

  /// Reads from after the opening quote. Returns the position after the closing one.
  std::size_t quoted_field(std::size_t at, std::string& field) {
    while (true) {
      const std::size_t quote = row_.find('"', at);
      if (quote == std::string::npos) fail(where(), "a quoted field that is never closed");
      field.append(row_, at, quote - at);
      if (quote + 1 == row_.size() || row_[quote + 1] != '"') return quote + 1;
      field += '"';
      at = quote + 2;
    }
  }

  void read_header() {
    const auto column = [&](std::string_view name) -> std::optional<std::size_t> {
      const auto found = std::find(fields_.begin(), fields_.end(), name);
      if (found == fields_.end()) return {};
      if (std::find(found + 1, fields_.end(), name) != fields_.end()) {
        fail(where(), "the header names the column '" + std::string(name) + "' twice");
      }
      return static_cast<std::size_t>(found - fields_.begin());
    };
    const auto path = column("path");
    if (!path) {
      const bool other = fields_.size() == 1 && fields_[0].find_first_of(";\t") != std::string::npos;
      fail(where(), "the header has no column 'path'; it reads '" + display_name(row_.substr(0, 80)) +
                        (other ? "' (columns are separated by commas)" : "' (the first row names the columns)"));
    }
    for (const std::string& name : fields_) check_key(name, where());
    path_ = *path;
    view_ = column("view");
    boxes_ = column("boxes");
    columns_ = fields_.size();
  }

  std::unique_ptr<LineReader> lines_;
  std::string row_, more_, name_;
  std::int64_t row_line_ = 0;
  std::vector<std::string> fields_;
  std::size_t columns_ = 0, path_ = 0;
  std::optional<std::size_t> view_, boxes_;
};

class JsonlManifest final : public ItemList {
 public:
  explicit JsonlManifest(std::unique_ptr<LineReader> lines) : lines_(std::move(lines)) {}

  Step next(ListedItem& item) override {
    do {
      if (const Step step = lines_->next(line_); step != Step::item) return step;
      drop_byte_order_mark(line_, lines_->line_number());
    } while (line_.find_first_not_of(" \t\r") == std::string::npos);
    const std::string where = lines_->where();
    const json object = parse_json(line_, where, "the line");
    if (!object.is_object()) fail(where, R"(not an object like {"path": "a.jpg"})");
    for (const auto& [key, value] : object.items()) check_key(key, where);
    item = {path_of(object, where), text_of(object, "view", where), {}, lines_->line_number()};
    check_path(item.path, where);
    if (const auto boxes = object.find("boxes"); boxes != object.end() && !boxes->is_null()) {
      item.boxes = parse_boxes(*boxes, where);
    }
    return Step::item;
  }

 private:
  static std::string text_of(const json& object, const char* key, const std::string& where) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return {};
    if (!found->is_string()) fail(where, std::string(key) + " is not text");
    return found->get<std::string>();
  }

  static std::string path_of(const json& object, const std::string& where) {
    const std::string encoded = text_of(object, "path_b64", where);
    if (encoded.empty()) {
      if (!object.contains("path")) fail(where, "the object has neither 'path' nor 'path_b64'");
      return text_of(object, "path", where);
    }
    try {
      return from_base64(encoded);
    } catch (const std::invalid_argument& error) {
      fail(where, std::string("path_b64: ") + error.what());
    }
  }

  std::unique_ptr<LineReader> lines_;
  std::string line_;
};

}  // namespace

std::unique_ptr<ItemList> text_list(std::unique_ptr<LineReader> lines, bool nul_separated) {
  return std::make_unique<TextList>(std::move(lines), nul_separated);
}

std::unique_ptr<ItemList> csv_manifest(std::unique_ptr<LineReader> lines) {
  return std::make_unique<CsvManifest>(std::move(lines));
}

std::unique_ptr<ItemList> jsonl_manifest(std::unique_ptr<LineReader> lines) {
  return std::make_unique<JsonlManifest>(std::move(lines));
}

}  // namespace millrace
