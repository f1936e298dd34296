// The header by which traces of several programs are joined (W3C Trace Context, section 3.2). Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace moed {

inline constexpr char kTraceParentKey[] = "traceparent";

// The header as version 00 writes it, 55 characters; "" where `text` is none. Of a later version, what version 00 knows of it.
std::string ReadTraceParent(std::string_view text);

// The trace's id, 32 hexadecimal digits; "" for "".
std::string TraceIdOf(std::string_view trace_parent);

}  // namespace moed
