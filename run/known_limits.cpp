#include "run/known_limits.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <utility>

#include "base/json.hpp"
#include "io/files/files.hpp"

namespace millrace {
namespace {

constexpr std::int64_t largest_file = 1 << 20;
constexpr double slack = 1.05;  // free memory differs a little from run to run

/// The entries of the file; none if it is missing or damaged.
nlohmann::json read(const std::string& file) {
  try {
    auto json = nlohmann::json::parse(read_text_file(file, largest_file));
    if (json.is_array()) return json;
  } catch (const std::exception&) {
  }
  return nlohmann::json::array();
}

}  // namespace

std::string user_state_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  // The XDG specification says to ignore relative paths.
  if (state != nullptr && *state == '/') return std::string(state) + "/millrace";
  return home != nullptr && *home == '/' ? std::string(home) + "/.local/state/millrace" : "";
}

std::string KnownLimits::usual_file() {
  const std::string folder = user_state_folder();
  return folder.empty() ? "" : folder + "/call_limits.json";
}

bool KnownLimits::recall(const std::string& device, std::int64_t limit_bytes, const Packages& packages,
                         CallLimits& limits) const {
  bool any = false;
  if (file_.empty()) return any;
  for (const auto& entry : read(file_)) {
    try {
      if (entry.at("device") != device ||
          entry.at("limit_bytes").get<double>() * slack < static_cast<double>(limit_bytes))
        continue;
      for (const auto& [folder, package] : packages) {
        if (entry.at("package") != package->id()) continue;
        limits.limit_rows(package->id(), entry.at("method").get<std::string>(), entry.at("most").get<int>());
        any = true;
      }
    } catch (const nlohmann::json::exception&) {  // an entry of another version
    }
  }
  return any;
}

void KnownLimits::remember(const std::string& device, std::int64_t limit_bytes, const Packages& packages,
                           const std::map<CallLimits::Key, int>& learned) const {
  if (file_.empty() || learned.empty()) return;
  const auto replaced = [&](const nlohmann::json& entry) {
    return std::any_of(packages.begin(), packages.end(), [&](const auto& named) {
      const Package& package = *named.second;
      return entry.value("device", "") == device && entry.value("package", "") == package.id() &&
             learned.count({package.id(), entry.value("method", "")}) > 0;
    });
  };
  // No lock: if two runs end at the same time, the file has the entries of one.
  // The other entries only cost calls that fail again.
  nlohmann::json kept = nlohmann::json::array();
  try {
    for (const auto& entry : read(file_)) {
      if (!replaced(entry)) kept.push_back(entry);
    }
    for (const auto& [folder, package] : packages) {
      for (const auto& [key, max_rows] : learned) {
        if (key.first != package->id()) continue;
        kept.push_back({{"device", device},
                        {"limit_bytes", limit_bytes},
                        {"package", package->id()},
                        {"method", key.second},
                        {"most", max_rows}});
      }
    }
    const std::filesystem::path path(file_);
    std::filesystem::create_directories(path.parent_path());
    write_durably(path.parent_path().string(), path.filename().string(), kept.dump(1));
  } catch (const std::exception&) {
  }
}

}  // namespace millrace
