#pragma once

#include <string>

#include "apps/serve/access.hpp"
#include "apps/serve/address.hpp"
#include "apps/serve/http_server.hpp"
#include "apps/serve/live_run.hpp"

namespace millrace {

inline constexpr int files_of_live_server = 40;  ///< open files that it needs at most

/// Serves a run to browsers and programs until it is destroyed (`--serve`).
class LiveServer {
 public:
  /// `place` is the value of serve.address, `output` the output folder as the user named it.
  /// Throws UsageError if it cannot listen there, and for a bad MILLRACE_SERVE_TOKEN.
  LiveServer(const std::string& place, const std::string& output);

  /// A sentence with the URL to open.
  [[nodiscard]] std::string text() const;
  LiveRun& run() { return run_; }
  /// The run is over: gives those who follow it the last state.
  void end() { server_.end(); }

 private:
  ServeAddress address_;
  const bool own_token_;  ///< the user's, which must not be printed
  const std::string token_;
  const ServeAccess access_;
  LiveRun run_;
  HttpServer server_;  // last: its thread uses the others
};

}  // namespace millrace
