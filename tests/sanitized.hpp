#pragma once

namespace millrace {

/// Whether this is a sanitizer's build. Sanitizers keep memory of their own, so bounds on memory do not hold.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
inline constexpr bool sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool sanitized = false;
#endif

/// Whether this is ThreadSanitizer's build. It leaves out long cases of one thread, which cannot race.
/// docs/ci.md lists them.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitized = true;
#elif defined(__has_feature)
inline constexpr bool thread_sanitized = __has_feature(thread_sanitizer);
#else
inline constexpr bool thread_sanitized = false;
#endif

}  // namespace millrace
