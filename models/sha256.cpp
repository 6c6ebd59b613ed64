#include "models/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

namespace millrace {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  }

  void add(const void* bytes, std::size_t count) { EVP_DigestUpdate(context_.get(), bytes, count); }

  std::string hex() {
    std::array<unsigned char, 32> digest{};
    EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr);
    std::string text;
    text.reserve(2 * digest.size());
    for (const unsigned char byte : digest) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.hex();
}

std::string sha256_of_file(const std::filesystem::path& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "rbe"), &std::fclose);
  if (!stream) throw std::system_error(errno, std::generic_category(), file.string());
  Sha256 hash;
  std::vector<char> piece(std::size_t{1} << 20);
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), stream.get()))
    hash.add(piece.data(), count);
  if (std::ferror(stream.get())) throw std::system_error(errno, std::generic_category(), file.string());
  return hash.hex();
}

}  // namespace millrace
