// The HTTP server with short times, and clients that are too slow for them.
#include "apps/serve/http_server.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <thread>

#include "apps/serve/address.hpp"

namespace millrace {
namespace {

class Client {
 public:
  explicit Client(const ServeAddress& server) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(server.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { ::close(socket_); }

  /// Returns false if the server has closed the connection.
  bool send(const std::string& text) {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  /// Everything until the server closes the connection.
  std::string read() {
    std::string all;
    std::array<char, 4096> part{};
    for (ssize_t count = 0; (count = ::recv(socket_, part.data(), part.size(), 0)) > 0;)
      all.append(part.data(), static_cast<std::size_t>(count));
    return all;
  }

 private:
  const int socket_;
};

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

HttpReply reply_of(std::size_t bytes) {
  return {.status = 200, .type = "text/plain", .body = std::make_shared<const std::string>(bytes, 'x')};
}

TEST_CASE("http server: a request that does not end in time loses its connection, even if parts of it keep coming") {
  ServeAddress address;
  HttpServer server(
      address, [](const HttpRequest&) { return reply_of(1); }, [] {}, {.request = std::chrono::milliseconds(30)});
  Client half(address);
  REQUIRE(half.send("GET / HTTP/1.1\r\n"));
  CHECK(half.read().empty());
  Client slow(address);
  // Without a time for the whole request, this would end at 8 KiB with an answer.
  while (slow.send("X")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(slow.read().empty());
}

TEST_CASE("http server: a client that takes no answer loses its connection") {
  ServeAddress address;
  // More than the buffers of the system hold.
  HttpServer server(
      address, [](const HttpRequest&) { return reply_of(64 << 20); }, [] {}, {.answer = std::chrono::milliseconds(30)});
  const auto before = open_files();
  Client client(address);
  REQUIRE(client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  // The server's end of the connection is open, and then closed: only the client's end is left.
  while (open_files() < before + 2) std::this_thread::yield();
  while (open_files() > before + 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(client.read().size() < (64 << 20));
}

}  // namespace
}  // namespace millrace
