#pragma once

#include <cstdint>
#include <string>

namespace millrace {

/// The place where `millrace run --serve` listens.
struct ServeAddress {
  std::string host = "127.0.0.1";  ///< an IP address, without brackets
  std::uint16_t port = 0;          ///< 0: the system chooses a free one
  bool v6 = false;
  bool loopback = true;  ///< only programs of this machine reach it
};

/// Reads "8080", "127.0.0.1:8080", "localhost:8080" or "[::1]:8080". A port alone means 127.0.0.1.
/// No name but localhost is looked up. Throws UsageError.
ServeAddress parse_serve_address(const std::string& text);

/// "127.0.0.1:8080", "[::1]:8080"
std::string to_string(const ServeAddress& address);

/// The page's address for people and browsers, without a token: "http://127.0.0.1:8080/".
/// If the program listens on all addresses of the machine, it has the name of the machine.
std::string url_of(const ServeAddress& address);

}  // namespace millrace
