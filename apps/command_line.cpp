#include "apps/command_line.hpp"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <sstream>

#include "base/nearest.hpp"

namespace millrace {
namespace {

namespace po = boost::program_options;

// Options that are short for a setting: `--conf 0.3` is `--set detect.conf=0.3`.
struct Shorthand {
  const char* flag;
  const char* key;
  const char* help;  // null: that of the setting
};
constexpr std::array shorthands{
    Shorthand{"output", "output.folder", "where segments, plan and reports go"},
    Shorthand{"detector", "detect.model",
              "package folder of the detector; with no --segmenter either: the built-in models"},
    Shorthand{"segmenter", "segment.model",
              "package folder of the segmenter; with no --detector either: the built-in models"},
    Shorthand{"format", "encode.format", nullptr},
    Shorthand{"limit", "input.limit", "stop after N pictures"},
    Shorthand{"every", "input.every", "take every N-th picture"},
    Shorthand{"sample", "input.sample", "take a share of the pictures, such as 1%"},
    Shorthand{"device", "device.kind", "auto, cpu, cuda, cuda:0,1 or cuda:all"},
    Shorthand{"capture", "trace.capture", "pictures that a profiler looks at, such as 100:200"},
    Shorthand{"source", "input.source", "files, or memory: pictures that come again are not decoded again"},
    Shorthand{"engine", "models.engine", "auto, torchscript or simulated:TABLE.yaml"},
    Shorthand{"gpu-memory", "device.memory", "share of a GPU's free memory to plan with, or bytes such as 8G"},
    Shorthand{"precision", "device.precision", "auto, fp32, tf32, bf16 or fp16"},
};

po::options_description describe() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("input,i", po::value<std::vector<std::string>>()->composing()->multitoken(),
      "folders, pictures, globs, text lists, CSV or JSONL manifests, or - for stdin");
  const Settings settings;
  for (const auto& [flag, key, help] : shorthands)
    add(flag, po::value<std::string>(), help != nullptr ? help : settings.help(key).c_str());
  add("follow-dirs", "follow links to folders");
  add("null,0", "names in lists and on stdin end with NUL");
  add("set", po::value<std::vector<std::string>>()->composing(),
      "GROUP.NAME=VALUE: any option; `millrace stages` lists them");
  add("print-config", "show every setting with its origin, as a recipe, and end");
  add("dry-run",
      "show what the input holds, and of the output how much its plan has left, and end; nothing is written");
  add("add-new", "add what is new in the input to a finished run");
  add("quiet,q", "neither progress nor table: errors and warnings only");
  add("help,h", "this text");
  return options;
}

std::vector<std::string> long_names(const po::options_description& options) {
  std::vector<std::string> names;
  for (const auto& option : options.options()) names.push_back(option->long_name());
  return names;
}

std::string unknown_option(const std::string& given, const po::options_description& options) {
  const std::string name = given.substr(std::min(given.find_first_not_of('-'), given.size()));
  const auto names = long_names(options);
  std::string begun;  // options of which this is the beginning: nearer than any that is merely spelled alike
  for (const auto& option : names) {
    if (!name.empty() && option.starts_with(name)) begun += (begun.empty() ? "'--" : " or '--") + option + "'";
  }
  const char* list = "`millrace run --help` lists them";
  return given + " is no option" +
         (begun.empty() ? did_you_mean(name, names, list, "--") : "; did you mean " + begun + "? " + list);
}

}  // namespace

RunArguments parse_run(const std::vector<std::string>& arguments) {
  const po::options_description visible = describe();
  po::options_description all;
  all.add(visible).add_options()("recipe", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("recipe", -1);
  // Abbreviations are off: a script that says --in today must not mean another option tomorrow.
  const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  po::variables_map given;
  try {
    po::store(po::command_line_parser(arguments).options(all).positional(positional).style(style).run(), given);
  } catch (const po::unknown_option& error) {
    throw UsageError(unknown_option(error.get_option_name(), visible));
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + "; `millrace run --help` shows how it is written");
  }

  RunArguments run;
  if (given.count("recipe") != 0U) {
    const auto recipes = given["recipe"].as<std::vector<std::string>>();
    if (recipes.size() > 1) {
      // One that is called like none is rather the value of an option.
      const auto odd =
          std::find_if(recipes.begin(), recipes.end(), [](const auto& word) { return !hint_of_value(word).empty(); });
      const std::string word = odd == recipes.end() ? recipes[1] : *odd;
      throw UsageError("'" + word + "' is " + (word == recipes[0] ? "one of several recipes" : "a second recipe") +
                       "; a run takes one (pictures are named with --input" + hint_of_value(word) + ")");
    }
    run.settings.read_recipe(recipes.front());
  }
  const auto origin_of = [](const std::string& flag) { return std::string(command_line) + ", --" + flag; };
  if (given.count("input") != 0U)
    run.settings.set("input.paths", given["input"].as<std::vector<std::string>>(), origin_of("input"));
  for (const auto& shorthand : shorthands) {
    if (given.count(shorthand.flag) == 0U) continue;
    run.settings.set(std::string(shorthand.key) + "=" + given[shorthand.flag].as<std::string>(),
                     origin_of(shorthand.flag));
  }
  if (given.count("follow-dirs") != 0U) run.settings.set("input.follow_dirs=yes", origin_of("follow-dirs"));
  if (given.count("null") != 0U) run.settings.set("input.nul_separated=yes", origin_of("null"));
  if (given.count("set") != 0U) {
    for (const auto& assignment : given["set"].as<std::vector<std::string>>()) run.settings.set(assignment);
  }
  run.print_config = given.count("print-config") != 0U;
  run.dry_run = given.count("dry-run") != 0U;
  run.quiet = given.count("quiet") != 0U;
  run.add_new = given.count("add-new") != 0U;
  return run;
}

std::string run_help() {
  std::ostringstream text;
  text
      << "Usage: millrace run [RECIPE.yaml] --input WHAT... --output FOLDER [options]\n\n"
         "Finds objects with a detector, outlines them with a segmenter, and writes boxes and masks to FOLDER.\n"
         "The same command again finishes what was left.\n\n"
      << describe()
      << "\nExamples:\n"
         "  millrace run --input pictures/ --detector yolov8n.pkg --segmenter mobile_sam.pkg --output out/\n"
         "  millrace run recipe.yaml --input scans/ --output out/ --set detect.conf=0.01\n"
         "\nExit codes: 0 done; 1 internal error; 2 wrong use, or no pictures; 3 done, but some pictures failed, or "
         "some folders\n"
         "could not be listed; 5 model, codec, device, or a limit of the system; 6 storage; 7 output in use by another "
         "run;\n"
         "8 output of other settings, models or input, or damaged; 130, 143 stopped. 6, 130 and 143 are resumable.\n";
  return text.str();
}

}  // namespace millrace
