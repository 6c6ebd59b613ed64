#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/keys.hpp"
#include "io/results/side_column.hpp"

namespace millrace {

class JsonWriter;

/// The part of a Field that does not depend on its type. A field is identified by its address.
struct FieldBase {
  std::string_view name;
  bool in_line = false;                             ///< part of the segment line, and kept until the line is made
  std::span<const std::string_view> object_keys{};  ///< keys that it adds to objects; empty: its name is the line's key
  bool in_side_column = false;
};

/// A side column has one row for each picture, or one row for each object.
enum class RowsOf { pictures, objects };

/// A typed column of a Frame or Batch. The header of a stage declares the fields that the stage writes:
///
///     inline constexpr Field<Rgb> mean_color{"mean_color", write_mean_color};
///
/// `line` writes the value into the segment line. The key before it is the name of the field.
/// `object` adds the listed keys to the object with that index.
///
/// Data that is too large for JSON, such as vectors, goes to a side column, the file `segments/000123.<name>.f16`:
///
///     inline constexpr Field<HalfRows> embedding{"embedding", RowsOf::objects};
///
/// Its rows have one width in all pictures of a run.
/// The line, or each object, then contains the number of the row under the name of the field.
///
/// A field that is in neither the line nor a side column stays inside the run.
/// The chain frees it after its last reader.
///
/// Names and keys are unique in a recipe. A field in the line cannot have the name of a fixed key of the line.
/// Chain checks both.
template <class T>
struct Field : FieldBase {
  using Line = void (*)(const T& value, JsonWriter& json);
  using Object = void (*)(const T& value, std::size_t index, JsonWriter& json);
  // Several constructors, because GCC with sanitizers does not accept `function != nullptr` in a constant expression.
  constexpr explicit Field(std::string_view field_name) : FieldBase{field_name, false} {}
  constexpr Field(std::string_view field_name, Line write_line) : FieldBase{field_name, true}, line(write_line) {}
  template <std::size_t N>
  constexpr Field(std::string_view field_name, const Keys<N>& keys, Object write_object)
      : FieldBase{field_name, true, keys.all()}, object(write_object) {}
  constexpr Field(std::string_view field_name, RowsOf rows_of) requires std::same_as<T, HalfRows>
      : FieldBase{field_name, true} {
    in_side_column = true;
    if (rows_of == RowsOf::objects) object_keys = {&this->name, 1};
  }
  Line line = nullptr;
  Object object = nullptr;
};

using Fields = std::vector<const FieldBase*>;

/// The fields that the running stage may read and write. Only builds with MILLRACE_CHECK_FIELDS check them.
struct Access {
  std::string stage;
  Fields reads, writes;
};

/// The columns of one frame or batch. Each field is written once.
/// Not thread-safe: one thread at a time uses a frame or batch.
class Columns {
 public:
  /// Throws std::logic_error if the field has a value already.
  template <class T>
  void set(const Field<T>& field, T value) {
    check(field, &Access::writes, "writes");
    if (find_cell(field) != nullptr) throw std::logic_error("field '" + std::string(field.name) + "' is written twice");
    cells_.push_back({&field, std::make_unique<Typed<T>>(field, std::move(value))});
  }

  /// The value; null if no stage wrote it, for example because the frame failed before. Valid until it is dropped.
  template <class T>
  const T* find(const Field<T>& field) const {
    check(field, &Access::reads, "reads");
    const Cell* cell = find_cell(field);
    return cell == nullptr ? nullptr : &static_cast<const Typed<T>*>(cell)->value;
  }

  /// The value. Throws std::logic_error if no stage wrote it.
  template <class T>
  const T& get(const Field<T>& field) const {
    const T* value = find(field);
    if (value == nullptr) throw std::logic_error("field '" + std::string(field.name) + "' is read but was not written");
    return *value;
  }

  void clear() { cells_.clear(); }
  bool has(const FieldBase& field) const { return find_cell(field) != nullptr; }

  void drop(const FieldBase& field) {
    std::erase_if(cells_, [&](const Entry& entry) { return entry.field == &field; });
  }

  /// Drops all fields that are not part of the segment line.
  void drop_unwritten() {
    std::erase_if(cells_, [](const Entry& entry) { return !entry.field->in_line; });
  }

  /// Writes every field that has its own key in the segment line, in the order in which stages set them.
  void write_line(JsonWriter& json) const {
    for (const auto& entry : cells_) entry.cell->line(entry.field->name, json);
  }

  /// Writes the keys that the fields add to object `index`.
  void write_object(std::size_t index, JsonWriter& json) const {
    for (const auto& entry : cells_) entry.cell->object(index, json);
  }

  /// Sets the fields that may be used from now on; null: all. `access` must outlive its use here.
  void allow(const Access* access) { access_ = access; }

 private:
  struct Cell {
    Cell() = default;
    Cell(const Cell&) = delete;
    Cell& operator=(const Cell&) = delete;
    virtual ~Cell() = default;
    virtual void line(std::string_view name, JsonWriter& json) const = 0;
    virtual void object(std::size_t index, JsonWriter& json) const = 0;
  };

  template <class T>
  struct Typed final : Cell {
    Typed(const Field<T>& field, T v) : declared(field), value(std::move(v)) {}
    void line(std::string_view name, JsonWriter& json) const override {
      if (declared.line != nullptr) write_key(json, name), declared.line(value, json);
      if constexpr (std::same_as<T, HalfRows>) write_picture_row(declared, value, json);
    }
    void object(std::size_t index, JsonWriter& json) const override {
      if (declared.object != nullptr) declared.object(value, index, json);
      if constexpr (std::same_as<T, HalfRows>) write_object_row(declared, value, index, json);
    }
    const Field<T>& declared;
    T value;
  };

  struct Entry {
    const FieldBase* field;
    std::unique_ptr<Cell> cell;
  };

  static void write_key(JsonWriter& json, std::string_view name);
  // They write nothing for a field that is not a side column with this kind of rows.
  static void write_picture_row(const FieldBase& field, const HalfRows& rows, JsonWriter& json);
  static void write_object_row(const FieldBase& field, const HalfRows& rows, std::size_t index, JsonWriter& json);

  const Cell* find_cell(const FieldBase& field) const {
    for (const auto& entry : cells_) {
      if (entry.field == &field) return entry.cell.get();
    }
    return nullptr;
  }

  void check([[maybe_unused]] const FieldBase& field, [[maybe_unused]] Fields Access::*list,
             [[maybe_unused]] std::string_view verb) const {
#ifdef MILLRACE_CHECK_FIELDS
    if (access_ == nullptr) return;
    const Fields& listed = access_->*list;
    if (std::find(listed.begin(), listed.end(), &field) == listed.end()) {
      throw std::logic_error("stage '" + access_->stage + "' " + std::string(verb) + " field '" +
                             std::string(field.name) + "' without listing it in its info()");
    }
#endif
  }

  std::vector<Entry> cells_;
  const Access* access_ = nullptr;
};

}  // namespace millrace
