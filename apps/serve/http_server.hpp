#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

struct ServeAddress;

/// A GET or HEAD request. Names and values are as sent: nothing in them is decoded.
struct HttpRequest {
  std::string path{};                          ///< without the query
  std::map<std::string, std::string> query{};  ///< of several values of a name, the last one
  std::string host{}, authorization{};         ///< headers; empty without them
};

struct HttpReply {
  int status = 200;
  std::string type{};  ///< Content-Type
  std::shared_ptr<const std::string> body{};
  std::vector<std::pair<std::string, std::string>> headers{};  ///< more headers
};

/// A short answer in words.
HttpReply text_reply(int status, std::string text);

struct HttpTimes {
  std::chrono::milliseconds tick = std::chrono::seconds(1);      ///< between two ticks
  std::chrono::milliseconds request = std::chrono::seconds(10);  ///< for a whole request, after the last answer
  std::chrono::milliseconds answer = std::chrono::seconds(30);   ///< to take an answer
  /// For clients that follow, to take the last answer. The page of a run can be busy for seconds, on a busy machine.
  std::chrono::milliseconds farewell = std::chrono::seconds(5);
};

/// Answers GET and HEAD requests, on one thread of its own. Only this file's source includes Boost.Asio and Boost.Beast.
///
/// Nothing that a client does delays others for long or takes much memory:
/// - At most 32 connections are open. Further ones wait in the queue of the system.
/// - A request has at most 8 KiB and no body. It must be complete in time (HttpTimes), and its answer must be taken.
/// - Other methods get status 405, and broken requests 4xx and the end of the connection.
class HttpServer {
 public:
  /// Answers a request. Nothing: the request waits, and the server asks again after the next tick.
  using Handler = std::function<std::optional<HttpReply>(const HttpRequest& request)>;

  /// Listens on `address`, from now on. If its port is 0, it becomes the chosen one.
  /// The thread calls `handler` and, once each HttpTimes::tick, `tick`.
  /// Throws UsageError if the port is taken, or the address is not of this machine.
  HttpServer(ServeAddress& address, Handler handler, std::function<void()> tick, HttpTimes times = {});
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// Closes all connections.
  ~HttpServer();

  /// Takes no more connections, and answers the requests that wait. From now on, `handler` must answer all of them.
  /// Clients that have waited on their connection may ask once more. The server ends when all have their answer, or
  /// after HttpTimes::farewell.
  void end();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
