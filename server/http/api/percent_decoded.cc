#include "server/http/api/percent_decoded.h"

#include <algorithm>
#include <charconv>

namespace moed::http {

std::string PercentDecoded(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const end = text.data() + std::min(i + 3, text.size());
    const bool escape = text[i] == '%' && i + 2 < text.size() && std::from_chars(text.data() + i + 1, end, byte, 16).ptr == end;
    plain += escape ? static_cast<char>(byte) : text[i];
    if (escape) i += 2;
  }
  return plain;
}

}  // namespace moed::http
