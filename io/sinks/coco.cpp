#include "io/sinks/coco.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "io/files/files.hpp"
#include "io/results/json_line.hpp"
#include "io/results/output_contents.hpp"

namespace millrace {
namespace {

constexpr std::size_t buffer_bytes = 1 << 20;

/// Maps names to category ids, also for models that number their classes differently.
class Categories {
 public:
  std::int64_t id_of(const Object& object) {
    const std::string name = object.name.empty() ? "class " + std::to_string(object.class_id) : object.name;
    if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
    const std::int64_t wanted = std::int64_t{object.class_id} + 1;
    const std::int64_t id = names_.contains(wanted) ? names_.rbegin()->first + 1 : wanted;
    ids_.emplace(name, id);
    names_.emplace(id, name);
    return id;
  }

  void write(JsonWriter& json) const {
    json.begin_array();
    for (const auto& [id, name] : names_) json.begin_object().key("id").value(id).key("name").value(name).end_object();
    json.end_array();
  }

 private:
  std::map<std::string, std::int64_t> ids_;
  std::map<std::int64_t, std::string> names_;
};

/// A file that is filled piece by piece under a temporary name. It is removed unless it gets its final name.
class Draft {
 public:
  Draft(const std::string& folder, const std::string& name)
      : path_(folder + "/.tmp-" + name), file_(path_, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW) {}
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (!path_.empty()) real_files.unlink(path_);
  }

  void append(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() >= buffer_bytes) flush();
  }
  void append_all_of(Draft& other) {
    other.flush();
    flush();
    std::vector<char> chunk(buffer_bytes);
    std::int64_t offset = 0;
    while (const std::size_t count = other.file_.read_at(chunk, offset)) {
      file_.write_all({chunk.data(), count});
      offset += static_cast<std::int64_t>(count);
    }
  }
  /// Closes the descriptor; reopen() continues at the end.
  /// An export may have more parts than a process may have open files.
  void rest() {
    flush();
    buffer_ = {};
    file_.close();
  }
  void reopen() { file_ = File(path_, O_WRONLY | O_APPEND | O_NOFOLLOW); }
  void sync_and_rename(const std::string& path) {
    flush();
    file_.sync();
    file_.close();
    if (real_files.rename(path_, path) != 0) throw StorageError("rename a file to", path, errno);
    path_.clear();
  }

 private:
  void flush() {
    file_.write_all(buffer_);
    buffer_.clear();
  }

  std::string path_;
  File file_;
  std::string buffer_;
};

/// One file of the export. Both of its lists grow at the same time, so images go to a file of their own first.
class Part {
 public:
  Part(const std::string& folder, const std::string& name)
      : file_(folder, name), images_(std::make_unique<Draft>(folder, name + ".images")) {
    file_.append("{\"annotations\": [");
  }

  std::int64_t annotations() const { return annotation_count_; }
  std::int64_t images() const { return image_count_; }

  void add_image(std::string_view json) {
    images_->append(image_count_++ == 0 ? "\n" : ",\n");
    images_->append(json);
  }
  void add_annotation(std::string_view json) {
    file_.append(annotation_count_++ == 0 ? "\n" : ",\n");
    file_.append(json);
  }
  void close_lists() {
    file_.append("],\n\"images\": [");
    file_.append_all_of(*images_);
    file_.append("],\n");
    images_.reset();
    file_.rest();
  }
  void finish(std::string_view tail, const std::string& path) {
    file_.reopen();
    file_.append(tail);
    file_.sync_and_rename(path);
  }

 private:
  Draft file_;
  std::unique_ptr<Draft> images_;
  std::int64_t image_count_ = 0, annotation_count_ = 0;
};

std::string image_json(const FrameRecord& frame) {
  JsonWriter json;
  json.begin_object().key("id").value(frame.id).key("width").value(frame.width).key("height").value(frame.height);
  write_path("file_name", frame.path, json);
  json.key("view").value(frame.view).end_object();
  return json.take();
}

std::string annotation_json(const Object& object, const FrameRecord& frame, std::int64_t id, std::int64_t category) {
  JsonWriter json;
  json.begin_object().key("id").value(id).key("image_id").value(frame.id).key("category_id").value(category);
  json.key("bbox").begin_array();
  for (const float side : {object.x, object.y, object.width, object.height}) json.rounded(side, 2);
  json.end_array();
  const bool has_mask = !object.rle_counts.empty();
  if (has_mask) {
    json.key("area").value(object.area);
  } else {
    json.key("area").rounded(double{object.width} * double{object.height}, 2);
  }
  json.key("iscrowd").value(0).key("score").rounded(object.score, 5);
  json.key("segmentation");
  if (has_mask) {
    write_rle(object.rle_counts, frame.width, frame.height, json);
    json.key("predicted_iou").rounded(object.predicted_iou, 5);
  } else {
    json.begin_array().end_array();
  }
  json.end_object();
  return json.take();
}

/// x/coco.json -> folder "x", stem "coco", extension ".json".
struct FileName {
  explicit FileName(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash != std::string::npos) folder = slash == 0 ? "/" : path.substr(0, slash);
    stem = slash == std::string::npos ? path : path.substr(slash + 1);
    if (const std::size_t dot = stem.rfind('.'); dot != std::string::npos && dot > 0) {
      extension = stem.substr(dot);
      stem.resize(dot);
    }
  }

  std::string numbered(std::size_t number) const {
    const std::string digits = std::to_string(number);
    return stem + "-" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits + extension;
  }
  /// Whether an export to this file may have written `name`.
  bool may_have_written(std::string_view name) const {
    if (name == stem + extension) return true;
    if (!name.starts_with(stem + "-") || !name.ends_with(extension)) return false;
    if (name.size() < stem.size() + 1 + 5 + extension.size()) return false;
    const auto digits = name.substr(stem.size() + 1, name.size() - stem.size() - 1 - extension.size());
    return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  std::string folder = ".", stem, extension;
};

class Exporter {
 public:
  Exporter(const std::string& file, const CocoOptions& options) : name_(file), options_(options) { begin_part(); }

  void add(const FrameRecord& frame) {
    if (frame.failed) {
      ++result_.failed;
      return;
    }
    const auto count = static_cast<std::int64_t>(frame.objects.size());
    if (parts_.back()->images() > 0 && parts_.back()->annotations() + count > options_.max_annotations_per_file) {
      parts_.back()->close_lists();
      begin_part();
    }
    parts_.back()->add_image(image_json(frame));
    ++result_.images;
    for (const auto& object : frame.objects) {
      parts_.back()->add_annotation(annotation_json(object, frame, ++result_.annotations, categories_.id_of(object)));
    }
  }

  CocoExport finish() {
    parts_.back()->close_lists();
    // Only now all categories and the number of parts are known, which every file contains.
    std::set<std::string> written;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::string name = parts_.size() == 1 ? name_.stem + name_.extension : name_.numbered(i + 1);
      result_.files.push_back(name_.folder + "/" + name);
      parts_[i]->finish(tail(i), result_.files.back());
      written.insert(name);
    }
    // Last, so that a failure before it leaves the files of an earlier export.
    for (const auto& name : list_folder(name_.folder)) {
      if (name_.may_have_written(name) && !written.contains(name)) remove_file(name_.folder + "/" + name);
    }
    sync_folder(name_.folder);
    return std::move(result_);
  }

 private:
  void begin_part() { parts_.push_back(std::make_unique<Part>(name_.folder, name_.numbered(parts_.size() + 1))); }

  std::string tail(std::size_t part) const {
    JsonWriter json;
    categories_.write(json);
    std::string text = "\"categories\": " + json.take();
    json.begin_object().key("description").value("Millrace export");
    json.key("part").value(part + 1).key("parts").value(parts_.size());
    json.key("images").value(parts_[part]->images()).key("annotations").value(parts_[part]->annotations());
    json.key("failed_pictures_left_out").value(result_.failed).end_object();
    text += ",\n\"info\": " + json.take() + "}\n";
    return text;
  }

  FileName name_;
  CocoOptions options_;
  Categories categories_;
  std::vector<std::unique_ptr<Part>> parts_;
  CocoExport result_;
};

}  // namespace

CocoExport export_coco(const std::string& out_folder, const std::string& file, const CocoOptions& options) {
  Exporter exporter(file, options);
  for_each_line(out_folder, [&](const SegmentLine& line) {
    exporter.add(parse_frame(line.json));
    return true;
  });
  return exporter.finish();
}

}  // namespace millrace
