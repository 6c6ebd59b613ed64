#include "apps/command_line.hpp"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <sstream>

#include "base/nearest.hpp"

namespace millrace {
namespace {

namespace po = boost::program_options;

// An option that is short for a setting: `--limit 5` is `--set input.limit=5`.
struct Shorthand {
  const char* flag;
  const char* key;
  const char* help;  // null: the help of the setting
};
constexpr std::array shorthands{
    Shorthand{"output", "output.folder", "folder for segments, plan and reports"},
    Shorthand{"detector", "detect.model",
              "package folder of the detector; without --detector and --segmenter, the built-in models run"},
    Shorthand{"segmenter", "segment.model",
              "package folder of the segmenter; without --detector and --segmenter, the built-in models run"},
    Shorthand{"format", "encode.format", nullptr},
    Shorthand{"instances", "semantic.instances", nullptr},
    Shorthand{"limit", "input.limit", "take the first N pictures"},
    Shorthand{"volume", "decode.volume", nullptr},
    Shorthand{"every", "input.every", "take every N-th picture"},
    Shorthand{"sample", "input.sample", "take a share of the pictures, such as 1%"},
    Shorthand{"level", "decode.level", nullptr},
    Shorthand{"mpp", "decode.mpp", nullptr},
    Shorthand{"device", "device.kind", "auto, cpu, cuda, cuda:0,1 or cuda:all"},
    Shorthand{"trace", "trace.file", nullptr},
    Shorthand{"events", "events.file", nullptr},
    Shorthand{"serve", "serve.address", nullptr},
    Shorthand{"capture", "trace.capture", "range of pictures that a profiler captures, such as 100:200"},
    Shorthand{"source", "input.source", nullptr},
    Shorthand{"engine", "models.engine", "auto, torchscript, aoti or simulated:TABLE.yaml"},
    Shorthand{"gpu-memory", "device.memory", "share of a GPU's free memory that the run may use, or bytes such as 8G"},
    Shorthand{"precision", "device.precision", "auto, fp32, tf32, bf16 or fp16; also by task: segment=bf16"},
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
  add("print-config", "print every setting with its origin, as a recipe, and exit");
  add("dry-run", "show the pictures of the input and how many of them the output still lacks; write nothing");
  add("add-new", "add new pictures of the input to the plan of the output");
  add("quiet,q", "print errors and warnings only: no progress, no table, no notes");
  add("help,h", "print this text and exit");
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
  std::string begun;  // options that begin with `name`: a better guess than one with a similar spelling
  for (const auto& option : names) {
    if (!name.empty() && option.starts_with(name)) begun += (begun.empty() ? "'--" : " or '--") + option + "'";
  }
  const char* list = "`millrace run --help` lists them";
  return given + " is not an option" +
         (begun.empty() ? did_you_mean(name, names, list, "--") : "; did you mean " + begun + "? " + list);
}

}  // namespace

RunArguments parse_run(const std::vector<std::string>& arguments) {
  const po::options_description visible = describe();
  po::options_description all;
  // A list, so that a second recipe gets our message with a hint.
  all.add(visible).add_options()("recipe", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("recipe", -1);
  // No abbreviations: if a script could write --in for --input, a new option --inside would break it.
  const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  po::variables_map given;
  try {
    po::store(po::command_line_parser(arguments).options(all).positional(positional).style(style).run(), given);
  } catch (const po::unknown_option& error) {
    throw UsageError(unknown_option(error.get_option_name(), visible));
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + "; `millrace run --help` shows the syntax");
  }

  RunArguments run;
  if (given.count("recipe") != 0U) {
    const auto recipes = given["recipe"].as<std::vector<std::string>>();
    if (recipes.size() > 1) {
      // A word without the extension of a recipe is probably the value of an option.
      const auto odd =
          std::find_if(recipes.begin(), recipes.end(), [](const auto& word) { return !hint_of_value(word).empty(); });
      const std::string word = odd == recipes.end() ? recipes[1] : *odd;
      throw UsageError("'" + word + "' is " + (word == recipes[0] ? "one of several recipes" : "a second recipe") +
                       "; a run takes only one (name pictures with --input" + hint_of_value(word) + ")");
    }
    // Before the options, which override the recipe.
    run.settings.read_recipe(recipes.front());
  }
  const auto origin_of = [](const std::string& flag) { return std::string(command_line) + ", --" + flag; };
  if (given.count("input") != 0U)
    // As a list, because the text form is split at commas, and names of files may contain commas.
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
  text << "Usage: millrace run [RECIPE.yaml] --input WHAT... --output FOLDER [options]\n\n"
          "Finds objects with a detector, outlines them with a segmenter, and writes boxes and masks to FOLDER.\n"
          "Run the same command again to resume.\n\n"
       << describe()
       << "\nExamples:\n"
          "  millrace run --input pictures/ --detector yolov8n.pkg --segmenter mobile_sam.pkg --output out/\n"
          "  millrace run recipe.yaml --input scans/ --output out/ --set detect.conf=0.01\n"
          "\nExit codes:\n"
          "  0    done\n"
          "  1    internal error\n"
          "  2    wrong use, or no pictures\n"
          "  3    done, but some pictures failed or some folders could not be listed\n"
          "  5    a problem with a model, codec, plug-in, device, CPU level or system limit\n"
          "  6    writing failed; the same command resumes\n"
          "  7    another run uses the output\n"
          "  8    the output is damaged, or belongs to other settings, models or input\n"
          "  130  stopped by Ctrl-C; the same command resumes\n"
          "  143  stopped by SIGTERM; the same command resumes\n";
  return text.str();
}

}  // namespace millrace
