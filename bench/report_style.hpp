#pragma once

namespace moecl::bench {

/// The report's CSS, light and dark. Marks take their colours from the classes c0, c1, ...
extern const char* const report_style;

}  // namespace moecl::bench
