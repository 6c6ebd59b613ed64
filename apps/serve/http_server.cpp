#include "apps/serve/http_server.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>

#include "apps/serve/address.hpp"
#include "pipeline/thread_pool.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::size_t most_connections = 32;
constexpr std::uint32_t longest_header = 8 << 10;

/// Sets path and query of "/status.json?after=3&token=x".
void split_target(std::string_view target, HttpRequest& request) {
  const auto mark = target.find('?');
  request.path = target.substr(0, mark);
  while (!target.empty() && mark != std::string_view::npos) {
    target.remove_prefix(target.find_first_of("?&") + 1);
    const std::string_view one = target.substr(0, target.find('&'));
    const auto equals = one.find('=');
    request.query[std::string(one.substr(0, equals))] =
        equals == std::string_view::npos ? "" : std::string(one.substr(equals + 1));
    if (one.size() == target.size()) break;
  }
}

int status_of(const ErrorCode& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::body_limit || error == http::error::unexpected_body) return 413;
  if (error == http::error::bad_version) return 505;
  return 400;
}

}  // namespace

HttpReply text_reply(int status, std::string text) {
  return {.status = status,
          .type = "text/plain; charset=utf-8",
          .body = std::make_shared<const std::string>(std::move(text))};
}

/// Everything but the constructor, end() and the destructor runs on `thread_`.
class HttpServer::Impl {
 public:
  Impl(ServeAddress& address, Handler handler, std::function<void()> tick, HttpTimes times)
      : handler_(std::move(handler)), tick_(std::move(tick)), times_(times) {
    listen(address);
    accept();
    wait_for_tick();
    thread_ = std::thread([this] {
      name_this_thread("serve");
      run();
    });
  }

  ~Impl() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void end() {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] { say_goodbye(); });
    thread_.join();
  }

 private:
  class Connection;
  using Connections = std::set<std::shared_ptr<Connection>>;

  void listen(ServeAddress& address) {
    const Tcp::endpoint endpoint(asio::ip::make_address(address.host), address.port);
    try {
      acceptor_.open(endpoint.protocol());
      acceptor_.set_option(Tcp::acceptor::reuse_address(true));  // connections of a run that has ended do not matter
      acceptor_.bind(endpoint);
      acceptor_.listen();
      address.port = acceptor_.local_endpoint().port();
    } catch (const boost::system::system_error& error) {
      const ErrorCode& code = error.code();
      const std::string where = "--serve cannot listen on " + to_string(address) + ": ";
      if (code == asio::error::address_in_use)
        throw UsageError(where + "another program uses this port; choose another port, or 0 for any free one");
      if (code == asio::error::access_denied)
        throw UsageError(where + "this user may not use this port; choose one above 1023");
      throw UsageError(where + std::system_category().message(code.value()) +
                       "; name an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them");
    }
  }

  void run() {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception&) {  // such as no memory: this connection is lost, others stay
      }
    }
  }

  void accept();

  void wait_for_tick() {
    timer_.expires_after(times_.tick);
    timer_.async_wait([this](const ErrorCode& error) {
      if (error || ending_) return;
      wait_for_tick();  // first, so that an exception below does not end the ticks
      try {
        tick_();
      } catch (const std::exception&) {  // the next tick may succeed
      }
      ask_again();
      if (!accepting_) accept();
    });
  }

  void ask_again();
  void say_goodbye();
  void remove(const std::shared_ptr<Connection>& connection);

  std::optional<HttpReply> answer(const HttpRequest& request) const {
    try {
      return handler_(request);
    } catch (const std::exception& error) {
      return text_reply(500, std::string("This answer could not be made: ") + error.what() + "\n");
    }
  }

  const Handler handler_;
  const std::function<void()> tick_;
  const HttpTimes times_;
  asio::io_context io_{1};
  Tcp::acceptor acceptor_{io_};
  asio::steady_timer timer_{io_};
  Connections connections_;
  bool accepting_ = false;
  bool ending_ = false;
  std::thread thread_;
};

/// One client: it reads a request, answers it, and reads the next one.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, Tcp::socket socket) : server_(server), stream_(std::move(socket)) {}

  void read() {
    parser_.emplace();
    parser_->header_limit(longest_header);
    stream_.expires_after(server_.times_.request);  // for the whole request, not for each part
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](const ErrorCode& error, std::size_t) {
      self->or_close([&] { self->got(error); });
    });
  }

  /// Answers the request if it waits for an answer.
  void ask_again() {
    if (waiting_) try_to_answer();
  }

  /// The server ends. A client that follows the run gets the time for one more request.
  void say_goodbye() {
    ask_again();
    if (idle_ && !follows_) close();
  }

  void close() {
    ErrorCode ignored;
    ignored = stream_.socket().shutdown(Tcp::socket::shutdown_both, ignored);
    stream_.close();
    server_.remove(shared_from_this());
  }

 private:
  /// A connection with nothing pending would never leave the server's list.
  template <class Work>
  void or_close(const Work& work) {
    try {
      work();
    } catch (const std::exception&) {  // such as no memory
      close();
    }
  }

  void got(const ErrorCode& error) {
    idle_ = false;
    if (error == http::error::end_of_stream || error == beast::error::timeout ||
        error == asio::error::operation_aborted || error == asio::error::connection_reset ||
        error == http::error::partial_message)
      return close();
    const auto& message = parser_->get();
    const bool known = parser_->is_header_done();
    keep_ = !error && message.keep_alive();
    head_ = known && message.method() == http::verb::head;
    // First, because a body of such a request is an error, too.
    if (known && !head_ && message.method() != http::verb::get) {
      HttpReply reply = text_reply(405, "This page can only be read: the methods are GET and HEAD.\n");
      reply.headers.emplace_back("Allow", "GET, HEAD");
      return write(reply);
    }
    if (error)
      return write(text_reply(status_of(error), "This is not a request for this page: " + error.message() + ".\n"));
    request_ = {.host = std::string(message[http::field::host]),
                .authorization = std::string(message[http::field::authorization])};
    split_target({message.target().data(), message.target().size()}, request_);
    try_to_answer();
  }

  void try_to_answer() {
    const auto reply = server_.answer(request_);
    waiting_ = !reply;
    if (reply) return write(*reply);
    follows_ = true;
    stream_.expires_never();
  }

  void write(const HttpReply& reply) {
    body_ = reply.body;
    response_.emplace();
    response_->version(11);
    response_->result(static_cast<unsigned>(reply.status));
    response_->set(http::field::content_type, reply.type);
    response_->set(http::field::cache_control, "no-store");
    response_->set("X-Content-Type-Options", "nosniff");
    response_->set("Referrer-Policy", "no-referrer");
    response_->set("Cross-Origin-Resource-Policy", "same-origin");
    response_->set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
    for (const auto& [name, value] : reply.headers) response_->set(name, value);
    keep_ = keep_ && !server_.ending_;
    response_->keep_alive(keep_);
    response_->body() = beast::span<const char>(body_->data(), body_->size());
    response_->prepare_payload();
    serializer_.emplace(*response_);
    stream_.expires_after(server_.times_.answer);
    const auto written = [self = shared_from_this()](const ErrorCode& error, std::size_t) {
      self->or_close([&] { self->wrote(error); });
    };
    if (head_) {
      http::async_write_header(stream_, *serializer_, written);
    } else {
      http::async_write(stream_, *serializer_, written);
    }
  }

  void wrote(const ErrorCode& error) {
    body_.reset();
    if (error || !keep_) return close();
    idle_ = true;
    read();
    if (server_.ending_) say_goodbye();
  }

  Impl& server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{longest_header + 1024};
  std::optional<http::request_parser<http::empty_body>> parser_;
  HttpRequest request_;
  std::shared_ptr<const std::string> body_;  // the response refers to it
  std::optional<http::response<http::span_body<const char>>> response_;
  std::optional<http::response_serializer<http::span_body<const char>>> serializer_;
  bool idle_ = true;      // no request has come since the last answer
  bool waiting_ = false;  // the request waits for an answer
  bool follows_ = false;  // a request had to wait
  bool head_ = false;
  bool keep_ = true;
};

void HttpServer::Impl::accept() {
  accepting_ = !ending_ && connections_.size() < most_connections;
  if (!accepting_) return;
  acceptor_.async_accept([this](const ErrorCode& error, Tcp::socket socket) {
    accepting_ = false;
    if (error) return;  // such as too many open files: the next tick tries again
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    connections_.insert(connection);
    connection->read();
    accept();
  });
}

void HttpServer::Impl::ask_again() {
  const Connections now = connections_;  // answers can remove connections
  for (const auto& connection : now) {
    try {
      connection->ask_again();
    } catch (const std::exception&) {  // such as no memory: only this client loses its connection
      connection->close();
    }
  }
}

void HttpServer::Impl::say_goodbye() {
  ending_ = true;
  ErrorCode ignored;
  ignored = acceptor_.close(ignored);
  timer_.expires_after(times_.farewell);
  timer_.async_wait([this](const ErrorCode& error) {
    if (!error) io_.stop();
  });
  const Connections now = connections_;
  for (const auto& connection : now) connection->say_goodbye();
  if (connections_.empty()) io_.stop();
}

void HttpServer::Impl::remove(const std::shared_ptr<Connection>& connection) {
  connections_.erase(connection);
  if (ending_ && connections_.empty()) return io_.stop();
  if (!accepting_) accept();
}

HttpServer::HttpServer(ServeAddress& address, Handler handler, std::function<void()> tick, HttpTimes times)
    : impl_(std::make_unique<Impl>(address, std::move(handler), std::move(tick), times)) {}

HttpServer::~HttpServer() = default;

void HttpServer::end() { impl_->end(); }

}  // namespace millrace
