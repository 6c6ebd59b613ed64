#include "apps/serve/address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "io/files/source_names.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

std::optional<std::uint16_t> port_of(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(port) : std::nullopt;
}

std::string bracketed(const std::string& host) { return host.find(':') == std::string::npos ? host : "[" + host + "]"; }

}  // namespace

ServeAddress parse_serve_address(const std::string& text) {
  const auto wrong = [&] {
    return UsageError("serve.address is '" + display_name(text) +
                      "'; it must be a port such as 8080, or an IP address with a port, such as 127.0.0.1:8080, "
                      "[::1]:8080 or 0.0.0.0:8080");
  };
  ServeAddress address;
  const auto colon = text.rfind(':');
  const auto port = port_of(colon == std::string::npos ? text : text.substr(colon + 1));
  if (!port) throw wrong();
  address.port = *port;
  if (colon == std::string::npos) return address;
  std::string host = text.substr(0, colon);
  if (host == "localhost") return address;
  address.v6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (address.v6) host = host.substr(1, host.size() - 2);
  in6_addr six{};
  in_addr four{};
  if (::inet_pton(address.v6 ? AF_INET6 : AF_INET, host.c_str(),
                  address.v6 ? static_cast<void*>(&six) : static_cast<void*>(&four)) != 1)
    throw wrong();
  constexpr int first_byte = 24;
  address.loopback = address.v6 ? IN6_IS_ADDR_LOOPBACK(&six) : ntohl(four.s_addr) >> first_byte == IN_LOOPBACKNET;
  address.host = host;
  return address;
}

std::string to_string(const ServeAddress& address) {
  return bracketed(address.host) + ":" + std::to_string(address.port);
}

std::string url_of(const ServeAddress& address) {
  std::string host = bracketed(address.host);
  in6_addr six{};
  const bool everywhere = address.v6
                              ? ::inet_pton(AF_INET6, address.host.c_str(), &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six)
                              : address.host == "0.0.0.0";
  std::array<char, 256> name{};
  if (everywhere && ::gethostname(name.data(), name.size() - 1) == 0) host = name.data();
  return "http://" + host + ":" + std::to_string(address.port) + "/";
}

}  // namespace millrace
