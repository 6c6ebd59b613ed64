// The HTTP server with short times, and clients that are too slow for them.
#include "apps/serve/http_server.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

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
  /// Everything until the text `last`, or until the server closes the connection.
  std::string read_until(std::string_view last) {
    std::string all;
    for (char one = 0; !all.ends_with(last) && ::recv(socket_, &one, 1, 0) == 1;) all += one;
    return all;
  }
  void close() { ::shutdown(socket_, SHUT_RDWR); }
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

TEST_CASE("http server: a client that follows gets time for one more request at the end, but not for ever") {
  ServeAddress address;
  bool asked = false;  // read and written by the thread of the server alone
  const auto second_time = [&asked](const HttpRequest&) {
    return std::exchange(asked, true) ? std::optional(reply_of(3)) : std::nullopt;
  };
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  SUBCASE("it asks") {
    HttpServer server(address, second_time, [] {}, {.tick = std::chrono::milliseconds(1)});
    Client client(address);
    REQUIRE(client.send(request));
    CHECK(client.read_until("xxx").ends_with("xxx"));
    std::thread end([&server] { server.end(); });
    REQUIRE(client.send(request));  // whether the end has begun or not
    CHECK(client.read_until("xxx").ends_with("xxx"));
    client.close();  // else the server waits for a further request
    end.join();
  }
  SUBCASE("it does not ask") {
    std::optional<HttpServer> server;
    server.emplace(
        address, second_time, [] {},
        HttpTimes{.tick = std::chrono::milliseconds(1), .farewell = std::chrono::milliseconds(30)});
    Client client(address);
    REQUIRE(client.send(request));
    CHECK(client.read_until("xxx").ends_with("xxx"));
    server->end();
    server.reset();
    CHECK(client.read().empty());
  }
}

}  // namespace
}  // namespace millrace
