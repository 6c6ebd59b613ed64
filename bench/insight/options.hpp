#pragma once

// Shared by the benchmarks in this folder: their command lines.

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

namespace millrace::bench {

/// The options of a benchmark by name, with their values as text: --json, and those in `defaults` with a value each.
/// For other words, prints the usage and ends the program with exit code 2.
inline std::map<std::string, std::string> options_of(int argc, char** argv,
                                                     std::map<std::string, std::string> defaults) {
  std::map<std::string, std::string> options = defaults;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(word.starts_with("--") ? 2 : 0);
    if (word == "--json") {
      options["json"] = "yes";
    } else if (word.starts_with("--") && defaults.count(name) > 0 && i + 1 < argc) {
      options[name] = argv[++i];
    } else {
      std::cerr << "usage: " << argv[0] << " [--json]";
      for (const auto& [known, value] : defaults) std::cerr << " [--" << known << " " << value << "]";
      std::cerr << "\n";
      std::exit(2);
    }
  }
  return options;
}

/// The value of an option as a number.
inline double number(const std::map<std::string, std::string>& options, const std::string& name) {
  return std::atof(options.at(name).c_str());
}

}  // namespace millrace::bench
