#pragma once

#include <optional>
#include <string>

namespace millrace {

struct HttpReply;
struct HttpRequest;
struct ServeAddress;

/// Name of the variable of the environment with the token of the user.
inline constexpr const char* serve_token_variable = "MILLRACE_SERVE_TOKEN";

/// The token that requests need: `given`, the value of MILLRACE_SERVE_TOKEN, which may be null. Without it, an address
/// that other machines reach gets a new random token, and loopback has none: empty.
/// Throws UsageError for a token that can be guessed or needs escapes in a URL.
std::string serve_token(const ServeAddress& address, const char* given);

/// Decides who may read the page of a run.
class ServeAccess {
 public:
  /// An empty `token`: none is needed.
  ServeAccess(bool loopback, const std::string& token);

  /// The answer to a request that is refused; nothing if it may read.
  /// - On loopback, the name in the URL must be that of this machine. Otherwise a page from elsewhere could give its
  ///   own name the address 127.0.0.1, and read everything (DNS rebinding).
  /// - The token is in `Authorization: Bearer TOKEN`, or in the query: `?token=TOKEN`.
  [[nodiscard]] std::optional<HttpReply> refusal(const HttpRequest& request) const;

 private:
  const bool loopback_;
  const std::string token_hash_;  // empty: no token is needed
};

}  // namespace millrace
