#pragma once

#include <string_view>

/// The files that report.html and the page of `millrace profile` are made of, built into the program.
namespace millrace::page_files {

extern const std::string_view html;      ///< report.html, with names in capitals between two @ for what is filled in
extern const std::string_view style;     ///< report.css
extern const std::string_view charts;    ///< charts.js
extern const std::string_view timeline;  ///< timeline.js
extern const std::string_view script;    ///< report.js
extern const std::string_view live;      ///< live.js
extern const std::string_view profile;   ///< profile.js
extern const std::string_view library;   ///< dygraphs, which draws charts over time
extern const std::string_view licence;   ///< of dygraphs

}  // namespace millrace::page_files
