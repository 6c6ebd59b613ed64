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

struct FieldBase {
  std::string_view name;
  bool in_line = false;                             ///< stands in the segment line, so it is kept until that is written
  std::span<const std::string_view> object_keys{};  ///< what it adds to objects; empty: its name is a key of the line
  bool in_side_column = false;
};

/// Whose rows a side column has: one row a picture, or one for each of its objects.
enum class RowsOf { pictures, objects };

/// A typed column of a Frame or Batch. A stage's header declares what the stage writes:
///
///     inline constexpr Field<Rgb> mean_color{"mean_color", write_mean_color};
///
/// `line` says how the value stands in the segment line (after the key, which is the field's name); `object` adds the
/// listed keys to the object of that index. What is too large or too binary for JSON goes to a side column,
/// `segments/000123.<name>.f16`, as rows of one width in all pictures of a run; the line, or each object, then has the
/// row's number under the field's name:
///
///     inline constexpr Field<HalfRows> embedding{"embedding", RowsOf::objects};
///
/// A field with none of these stays inside the run and is freed after its last reader. Names and keys are unique in a
/// recipe, and no name in the line is one of its own keys: Chain checks it.
template <class T>
struct Field : FieldBase {
  using Line = void (*)(const T& value, JsonWriter& json);
  using Object = void (*)(const T& value, std::size_t index, JsonWriter& json);
  // Several, because GCC's sanitizers take comparing a function with nullptr for no constant.
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

/// What the running stage may touch; checked in builds with MILLRACE_CHECK_FIELDS.
struct Access {
  std::string stage;
  Fields reads, writes;
};

/// The columns of one message. Each field has one writer.
class Columns {
 public:
  template <class T>
  void set(const Field<T>& field, T value) {
    check(field, &Access::writes, "writes");
    if (find_cell(field) != nullptr) throw std::logic_error("field '" + std::string(field.name) + "' is written twice");
    cells_.push_back({&field, std::make_unique<Typed<T>>(field, std::move(value))});
  }

  /// The value, or nullptr where no stage wrote it (for a frame: it failed before).
  template <class T>
  const T* find(const Field<T>& field) const {
    check(field, &Access::reads, "reads");
    const Cell* cell = find_cell(field);
    return cell == nullptr ? nullptr : &static_cast<const Typed<T>*>(cell)->value;
  }

  template <class T>
  const T& get(const Field<T>& field) const {
    const T* value = find(field);
    if (value == nullptr) throw std::logic_error("field '" + std::string(field.name) + "' is read and was not written");
    return *value;
  }

  void clear() { cells_.clear(); }
  bool has(const FieldBase& field) const { return find_cell(field) != nullptr; }

  void drop(const FieldBase& field) {
    std::erase_if(cells_, [&](const Entry& entry) { return entry.field == &field; });
  }

  /// Drops what does not stand in the segment line.
  void drop_unwritten() {
    std::erase_if(cells_, [](const Entry& entry) { return !entry.field->in_line; });
  }

  /// Writes every field that has a key of its own in the segment line, in the order of writing.
  void write_line(JsonWriter& json) const {
    for (const auto& entry : cells_) entry.cell->line(entry.field->name, json);
  }

  /// Writes what the fields know about object `index`.
  void write_object(std::size_t index, JsonWriter& json) const {
    for (const auto& entry : cells_) entry.cell->object(index, json);
  }

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
  // Nothing for a field that is no side column of the kind.
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
