#include "apps/commands.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/terminal.hpp"
#include "base/nearest.hpp"
#include "base/text.hpp"
#include "io/files/source_names.hpp"
#include "io/reducers/reducer.hpp"
#include "models/package.hpp"
#include "run/output_state.hpp"
#include "run/settings.hpp"
#include "stages/registry.hpp"
#include "stages/sinks/sink.hpp"

namespace millrace {
namespace {

void print_fields(const char* label, const Fields& fields) {
  if (fields.empty()) return;
  std::printf("  %-12s   %s:", "", label);
  const char* separator = " ";
  for (const FieldBase* field : fields) {
    std::printf("%s%s", separator, std::string(field->name).c_str());
    separator = ", ";
  }
  std::printf("\n");
}

/// "; overlay/ and coco.json are not checked", or nothing: manifests do not cover the outputs of sinks.
std::string not_checked(const std::string& folder) {
  std::vector<std::string> there = sink_outputs(folder);
  for (auto& name : there) {
    std::error_code error;
    if (std::filesystem::is_directory(std::filesystem::path(folder) / name, error)) name += '/';
  }
  if (there.empty()) return {};
  return "; " + listed(there) + (there.size() == 1 ? " is" : " are") + " not checked";
}

OutputState read_output_of(const std::string& folder) {
  auto state = read_output(folder);
  if (!state)
    throw UsageError("'" + folder +
                     "' has no plan: it is not an output folder of Millrace, or its run failed before it made a plan");
  return *std::move(state);
}

}  // namespace

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& a) { return a == "--help" || a == "-h"; });
}

ExitCode inspect_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(
        "Usage: millrace inspect PACKAGE...\n\nChecks model packages (hashes, keys, files) and describes them.\n",
        stdout);
    return ExitCode::ok;
  }
  if (arguments.empty()) throw UsageError("`millrace inspect` needs a package folder: `millrace inspect PACKAGE`");
  for (const auto& folder : arguments) std::printf("%s\n", describe(read_package(folder, CheckFiles::all)).c_str());
  return ExitCode::ok;
}

ExitCode stages_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs("Usage: millrace stages\n\nLists the stages for recipes, and every option (--set GROUP.NAME=VALUE).\n",
               stdout);
    return ExitCode::ok;
  }
  if (!arguments.empty()) throw UsageError("`millrace stages` takes no arguments: it lists all stages");
  std::fputs("Stages, in the order of a full pipeline:\n", stdout);
  for (const auto& entry : stage_table()) {
    const StageInfo info = entry.default_info();
    std::printf("  %-12s %s\n", entry.name.c_str(), info.summary.c_str());
    print_fields("reads", info.reads);
    print_fields("reads if present", info.uses);
    print_fields("writes", info.writes);
  }
  std::fputs("\nOptions (! marks those that determine results: the plan records them):\n", stdout);
  for (const auto& [group, options] : Settings().all_options()) {
    for (const auto& option : options) {
      const std::string key = group + "." + option.name;
      const std::string shown = option.default_value.empty() ? "-" : option.default_value;
      const std::string on_gpu = option.on_gpu.empty() ? "" : " (on a GPU: " + option.on_gpu + ")";
      std::printf("  %c %-26s %-8s %-10s %s%s\n", option.affects == Affects::results ? '!' : ' ', key.c_str(),
                  option.type.c_str(), shown.c_str(), option.help.c_str(), on_gpu.c_str());
    }
  }
  return ExitCode::ok;
}

ExitCode reduce_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const auto& reducer : reducer_table()) names.push_back(reducer.name);
  if (asks_for_help(arguments)) {
    std::fputs(
        "Usage: millrace reduce NAME OUT\n\nRuns a reducer over the finished segments of an output folder. It writes "
        "OUT/reduced/NAME.*,\nand replaces an older version of these files. A run may write to OUT at the same "
        "time.\n\n"
        "Reducers:\n",
        stdout);
    for (const auto& reducer : reducer_table()) std::printf("  %-12s %s\n", reducer.name.c_str(), reducer.help.c_str());
    return ExitCode::ok;
  }
  if (arguments.size() != 2)
    throw UsageError("`millrace reduce` needs the name of a reducer and an output folder: `millrace reduce " +
                     names.front() + " out/`");
  const std::string& name = arguments[0];
  const std::string& folder = arguments[1];
  const ReducerEntry* const reducer = find_reducer(name);
  if (reducer == nullptr) {
    throw UsageError("'" + name + "' is not a reducer" +
                     did_you_mean(name, names, "`millrace reduce --help` lists them"));
  }
  // Before the reducer, because it also refuses a folder that is no output.
  const OutputState state = read_output_of(folder);
  const ReducerOutput output = run_reducer(*reducer, folder);
  for (const auto& sentence : output.summary) std::printf("%s\n", sentence.c_str());
  const std::int64_t missing = state.planned - state.contents.counts.items;
  std::printf("of        %s in finished segments%s\n", count_of(state.contents.counts.items, "picture").c_str(),
              missing > 0 ? ("; " + grouped(missing) + " of the plan are not in one yet").c_str() : "");
  std::printf("result    %s\n", display_name((std::filesystem::path(folder) / output.file).string()).c_str());
  return ExitCode::ok;
}

ExitCode status_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(
        "Usage: millrace status OUT [--verify]\n\nShows what an output folder holds. It changes nothing, and you can "
        "call it "
        "during a run.\n\n  --verify  read every byte of the finished segments and compare their checksums;\n"
        "            overlays, label maps and COCO files are not checked\n",
        stdout);
    return ExitCode::ok;
  }
  auto folders = arguments;
  const bool verify = std::erase(folders, "--verify") > 0;
  if (folders.size() != 1)
    throw UsageError("`millrace status` needs one output folder: `millrace status OUT [--verify]`");
  const std::string& folder = folders.front();
  OutputState state = read_output_of(folder);
  OutputContents& contents = state.contents;
  const auto& end = state.end;
  if (verify) {
    // verify_segments() reads everything, so it finds these problems again.
    contents.problems.clear();
    for (const auto& damaged : verify_segments(folder)) {
      contents.problems.push_back(damaged.problem + (damaged.first_item < 0
                                                         ? ""
                                                         : " (items " + std::to_string(damaged.first_item) + " to " +
                                                               std::to_string(damaged.last_item) + ")"));
    }
  }

  std::printf("planned   %s in %s%s\n", count_of(state.planned, "picture").c_str(),
              count_of(static_cast<std::int64_t>(state.segments), "segment").c_str(),
              end ? "" : "; the scan is not finished");
  std::printf("done      %s\n", grouped(state.done()).c_str());
  if (contents.done_segments > 0) {
    std::printf("          in finished segments: %s ok, %s failed, %s\n", grouped(contents.counts.ok).c_str(),
                grouped(contents.counts.failed_items()).c_str(), count_of(contents.counts.objects, "object").c_str());
  }
  for (const auto& [reason, count] : contents.counts.failed) {
    std::printf("            %s: %s\n", std::string(to_string(reason)).c_str(), grouped(count).c_str());
  }
  if (contents.journaled_items > 0) {
    std::printf("          in open segments: %s\n", grouped(contents.journaled_items).c_str());
  }
  std::printf("left      %s\n", grouped(state.left()).c_str());
  if (const Tally folders = end ? end->counts[Skip::unreadable_folder] : Tally(); folders.count > 0) {
    std::printf("unlisted  %s could not be listed (%s) and %s not in the plan; --add-new tries again\n",
                count_of(folders.count, "folder").c_str(), names_of(folders).c_str(),
                folders.count == 1 ? "is" : "are");
  }
  if (contents.locked_by) std::printf("running   %s\n", contents.locked_by->describe().c_str());
  for (const auto& problem : contents.problems) std::printf("problem   %s\n", problem.c_str());
  if (verify && contents.problems.empty())
    std::printf("verified  every byte of %s%s\n", count_of(contents.done_segments, "segment").c_str(),
                not_checked(folder).c_str());
  if (state.left() > 0 && !contents.locked_by) std::printf("to finish the rest, run the same command again\n");
  return contents.problems.empty() ? ExitCode::ok : ExitCode::mismatch;
}

}  // namespace millrace
