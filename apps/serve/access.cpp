#include "apps/serve/access.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "apps/format.hpp"
#include "apps/serve/address.hpp"
#include "apps/serve/http_server.hpp"
#include "io/files/files.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr std::size_t shortest_token = 16;
constexpr std::size_t longest_token = 256;

std::string random_token() {
  std::array<unsigned char, 16> bytes{};  // 128 bits
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::system_error(errno, std::generic_category(), "getrandom");
  std::string token;
  for (const unsigned char byte : bytes) token += format("%02x", byte);
  return token;
}

bool needs_no_escape(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
         letter == '-' || letter == '.' || letter == '_' || letter == '~';
}

/// "localhost", or an address of the loopback. Any port: it differs behind `ssh -L`, and no attacker's name has it.
bool names_this_machine(std::string_view host) {
  const auto bracket = host.find(']');
  const auto colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const std::string name(host.substr(0, colon));
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (lower == "localhost" || name == "[::1]") return true;
  in_addr four{};
  constexpr int first_byte = 24;
  return ::inet_pton(AF_INET, name.c_str(), &four) == 1 && ntohl(four.s_addr) >> first_byte == IN_LOOPBACKNET;
}

}  // namespace

std::string serve_token(const ServeAddress& address, const char* given) {
  if (given == nullptr) return address.loopback ? "" : random_token();
  const std::string token = given;
  if (token.size() < shortest_token || token.size() > longest_token || !std::ranges::all_of(token, needs_no_escape))
    throw UsageError(std::string(serve_token_variable) +
                     " must have 16 to 256 letters, digits and - . _ ~; `openssl rand -hex 16` prints a good one");
  return token;
}

ServeAccess::ServeAccess(bool loopback, const std::string& token)
    : loopback_(loopback), token_hash_(token.empty() ? "" : sha256_hex(token)) {}

std::optional<HttpReply> ServeAccess::refusal(const HttpRequest& request) const {
  if (loopback_ && !names_this_machine(request.host)) {
    return text_reply(403, "This page is only for this machine: open it as http://127.0.0.1 or http://localhost.\n");
  }
  if (token_hash_.empty()) return std::nullopt;
  constexpr std::string_view scheme = "Bearer ";
  std::string given;
  if (request.authorization.starts_with(scheme)) {
    given = request.authorization.substr(scheme.size());
  } else if (const auto found = request.query.find("token"); found != request.query.end()) {
    given = found->second;
  }
  // Hashes are compared, because the time that a comparison of the token takes would tell how much of a guess is right.
  if (sha256_hex(given) == token_hash_) return std::nullopt;
  HttpReply reply = text_reply(401,
                               "A token is needed: open the URL that the run printed, with ?token=... at its end.\n"
                               "Programs may send it as `Authorization: Bearer TOKEN`.\n");
  reply.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"millrace\"");
  return reply;
}

}  // namespace millrace
