#include "io/files/base64.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <stdexcept>

namespace millrace {

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock ends with a NUL
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

std::string from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int length = text.size() % 4 != 0 ? -1
                                          : EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                                            reinterpret_cast<const unsigned char*>(text.data()),
                                                            static_cast<int>(text.size()));
  // EVP_DecodeBlock counts the padding as bytes.
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  if (length < 0 || static_cast<std::size_t>(length) < padding) throw std::invalid_argument("not base64");
  bytes.resize(static_cast<std::size_t>(length) - padding);
  // EVP_DecodeBlock also accepts text that to_base64() does not make, such as spaces around it.
  if (to_base64(bytes) != text) throw std::invalid_argument("not base64");
  return bytes;
}

}  // namespace millrace
