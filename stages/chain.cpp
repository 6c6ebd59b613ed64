#include "stages/chain.hpp"

#include <algorithm>
#include <map>
#include <new>
#include <stdexcept>
#include <string_view>

#include "io/results/json_line.hpp"
#include "stages/decode.hpp"

namespace millrace {
namespace {

bool contains(const Fields& fields, const FieldBase* field) {
  return std::find(fields.begin(), fields.end(), field) != fields.end();
}

// The stage that writes the field with default options, for advice in a message. Empty if there is none.
// Finds no field of a stage with S::Own: each declaration makes such fields anew, and a field is its address.
std::string writer_of(const FieldBase* field, const std::vector<StageEntry>& table) {
  for (const auto& entry : table) {
    if (contains(entry.default_info().writes, field)) return entry.name;
  }
  return {};
}

const char* section_name(Section section) {
  switch (section) {
    case Section::frame:
      return "on single pictures";
    case Section::lane:
      return "in the lane";
    case Section::batch:
      return "on batches after the lane";
  }
  return "";
}

void check_reads(const std::vector<ChainLink>& before, const StageInfo& info, const std::vector<StageEntry>& table) {
  for (const FieldBase* field : info.reads) {
    const bool written = std::any_of(before.begin(), before.end(),
                                     [&](const ChainLink& link) { return contains(link.info.writes, field); });
    if (written) continue;
    const std::string writer = writer_of(field, table);
    throw UsageError("stage '" + info.name + "' reads '" + std::string(field->name) +
                     "', which no stage before it writes" + (writer.empty() ? "" : "; put '" + writer + "' before it"));
  }
}

void check_writes(const std::vector<ChainLink>& before, const StageInfo& info) {
  for (const auto& link : before) {
    if (link.info.name == info.name)
      throw UsageError("stage '" + info.name + "' appears twice in the recipe; remove one");
    for (const FieldBase* field : info.writes) {
      if (!contains(link.info.writes, field)) continue;
      throw UsageError("stages '" + link.info.name + "' and '" + info.name + "' both write '" +
                       std::string(field->name) + "'; remove one of them");
    }
  }
}

struct Writer {
  const ChainLink* link;
  const FieldBase* field;
  std::string text() const { return "field '" + std::string(field->name) + "' of stage '" + link->info.name + "'"; }
};

// The author of the name must change it: the author of the recipe (UsageError) or of the sources (logic_error).
[[noreturn]] void refuse(const Writer& by, const std::string& text, const char* what = "it") {
  if (by.link->info.own != nullptr) throw UsageError(text + "; choose another name for the stage in the recipe");
  throw std::logic_error(text + "; rename " + what + " where the stage declares it");
}

// Takes a name or key for a field. Throws if another field has it.
// If only one of the two names comes from the recipe, the recipe must change.
void claim(std::map<std::string_view, Writer>& taken, std::string_view text, const Writer& by, const char* what) {
  const auto [first, is_new] = taken.emplace(text, by);
  if (is_new || first->second.field == by.field) return;
  const bool by_recipe = first->second.link->info.own != nullptr && by.link->info.own == nullptr;
  refuse(by_recipe ? first->second : by,
         by.text() + " and " + first->second.text() + " both have the " + what + " '" + std::string(text) + "'",
         "one of them");
}

// Without this check a JSON object could have a key twice, and readers differ in the value that they take.
void check_keys(const std::vector<ChainLink>& links) {
  std::map<std::string_view, Writer> names, object_keys;
  for (const auto& link : links) {
    for (const FieldBase* field : link.info.writes) {
      const Writer writer{&link, field};
      claim(names, field->name, writer, "name");
      if (field->in_side_column && !is_column_name(field->name)) {
        refuse(writer, writer.text() + " is a side column, so its name is part of a file name. Use at most 64 " +
                           "lower-case letters, digits and '_', a letter first, and not like 'r1'");
      }
      for (const std::string_view key : field->object_keys) claim(object_keys, key, writer, "object key");
      const auto reserved = line_keys.all();
      // A field with object keys writes into the objects, so its name is no key of the line.
      if (field->in_line && field->object_keys.empty() && std::ranges::find(reserved, field->name) != reserved.end()) {
        refuse(writer, writer.text() + " has the name of a key that segment lines already have");
      }
    }
  }
}

// A field is freed after its last reader, or after its writer if no stage reads it.
// Fields of the line stay until the line is made. Fields of the last section stay for the commit.
void plan_frees(std::vector<ChainLink>& links) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    Fields touched = links[i].access.reads;
    if (links[i].info.section != Section::batch)
      touched.insert(touched.end(), links[i].info.writes.begin(), links[i].info.writes.end());
    for (const FieldBase* field : touched) {
      const bool later = std::any_of(links.begin() + static_cast<std::ptrdiff_t>(i) + 1, links.end(),
                                     [&](const ChainLink& link) { return contains(link.access.reads, field); });
      if (!later && !field->in_line) links[i].frees.push_back(field);
    }
  }
}

void free_columns(const ChainLink& link, Columns& columns, bool failed) {
  columns.allow(nullptr);
  for (const FieldBase* field : link.frees) columns.drop(*field);
  // A failed frame gives its memory back at once, not after the last reader of each field.
  if (failed) columns.drop_unwritten();
}

void allow(const ChainLink& link, Batch& batch) {
  batch.columns.allow(&link.access);
  for (const auto& frame : batch.frames) frame->columns.allow(&link.access);
}

}  // namespace

Chain::Chain(const std::vector<RecipeStage>& stages, const Values& values, const std::vector<StageEntry>& table)
    : table_(&table) {
  if (stages.empty()) throw UsageError("the recipe names no stages; list them under 'stages:'");
  for (const RecipeStage& stage : stages) {
    ChainLink link;
    link.entry = &find_stage(stage.stage, table);
    link.options = link.entry->parse(values(stage.name), stage.name);
    link.info = link.entry->info(link.options, stage.name);
    add(std::move(link), table);
  }
  finish();
}

Chain Chain::for_view(const std::function<bool(const std::string& name)>& differs, const Values& values) const {
  Chain view;
  view.table_ = table_;
  for (const ChainLink& base : links_) {
    ChainLink link = base;
    // finish() plans them anew: a stage with other options may read and write other fields.
    link.frees.clear();
    link.has_recipe_options = !differs(base.info.name);
    if (!link.has_recipe_options) {
      link.options = link.entry->parse(values(base.info.name), base.info.name);
      link.info = link.entry->info(link.options, base.info.name);
    }
    view.add(std::move(link), *table_);
  }
  view.finish();
  return view;
}

void Chain::add(ChainLink link, const std::vector<StageEntry>& table) {
  const StageInfo& info = link.info;
  if (!links_.empty() && links_.back().info.section > info.section) {
    throw UsageError("stage '" + info.name + "' works " + section_name(info.section) + " and cannot come after '" +
                     links_.back().info.name + "', which works " + section_name(links_.back().info.section));
  }
  check_reads(links_, info, table);
  check_writes(links_, info);
  link.access = {info.name, info.reads, info.writes};
  // Uses count as reads, but check_reads() does not demand a writer for them.
  link.access.reads.insert(link.access.reads.end(), info.uses.begin(), info.uses.end());
  links_.push_back(std::move(link));
}

void Chain::finish() {
  check_keys(links_);
  // After the last stage, because it looks for later readers.
  plan_frees(links_);
}

std::vector<const ChainLink*> Chain::of(Section section) const {
  std::vector<const ChainLink*> found;
  for (const auto& link : links_) {
    if (link.info.section == section) found.push_back(&link);
  }
  return found;
}

const ChainLink* Chain::find(const std::string& stage) const {
  for (const auto& link : links_) {
    // By the name in the table. A recipe may give the stage other names.
    if (link.entry->name == stage) return &link;
  }
  return nullptr;
}

int Chain::objects() const {
  int objects = 0;
  for (const auto& link : links_) objects = std::max(objects, link.info.objects);
  return objects;
}

const ChainLink* reader_of_pixels(const Chain& chain) {
  const auto found = std::ranges::find_if(chain.links(), [](const ChainLink& link) {
    return !link.info.in_parts && std::ranges::find(link.info.reads, &pixels) != link.info.reads.end();
  });
  return found == chain.links().end() ? nullptr : &*found;
}

bool reads_in_parts(const Chain& chain) {
  // It would find no pixels.
  if (reader_of_pixels(chain) != nullptr) return false;
  return std::ranges::any_of(chain.links(), [](const ChainLink& link) { return link.info.in_parts; });
}

void run_stage(const ChainLink& link, const FrameStage& stage, Frame& frame) {
  frame.columns.allow(&link.access);
  stage.run(frame);
  free_columns(link, frame.columns, frame.failed());
}

void run_stage(const ChainLink& link, LaneStage& stage, Batch& batch) {
  allow(link, batch);
  stage.run(batch);
  for (const auto& frame : batch.frames) free_columns(link, frame->columns, frame->failed());
  // `false`: a batch does not fail, only its frames do.
  free_columns(link, batch.columns, false);
}

// A failed frame keeps its columns, because `encode` has set its segment line.
void run_stage(const ChainLink& link, const BatchStage& stage, Batch& batch) {
  allow(link, batch);
  stage.run(batch);
  for (const auto& frame : batch.frames) free_columns(link, frame->columns, false);
  free_columns(link, batch.columns, false);
}

void fail_frame(Frame& frame, const std::string& stage, const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const PictureError& error) {
    frame.fail(stage, error.reason(), error.what());
  } catch (const std::bad_alloc&) {
    frame.fail(stage, Reason::oom_host, "no memory was left for this picture");
  } catch (const std::exception& error) {
    frame.fail(stage, Reason::internal, stage + ": " + error.what());
  } catch (...) {
    frame.fail(stage, Reason::internal, stage + ": an exception of unknown type");
  }
  // If the stage threw, run_stage() did not get to free_columns().
  frame.columns.allow(nullptr);
  frame.columns.drop_unwritten();
}

}  // namespace millrace
