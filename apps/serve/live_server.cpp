#include "apps/serve/live_server.hpp"

#include <cstdlib>

namespace millrace {

LiveServer::LiveServer(const std::string& place, const std::string& output)
    : address_(parse_serve_address(place)),
      own_token_(std::getenv(serve_token_variable) != nullptr),
      token_(serve_token(address_, std::getenv(serve_token_variable))),
      access_(address_.loopback, token_),
      run_(output),
      server_(
          address_,
          [this](const HttpRequest& request) {
            auto refused = access_.refusal(request);
            return refused ? refused : run_.answer(request);
          },
          [this] { run_.tick(); }) {}

std::string LiveServer::text() const {
  const std::string text = "watch this run at " + url_of(address_);
  if (token_.empty()) return text;
  return own_token_ ? text + "?token=TOKEN, where TOKEN is the value of " + serve_token_variable
                    : text + "?token=" + token_;
}

}  // namespace millrace
