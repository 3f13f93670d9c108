# Small libraries, linked statically where Debian ships the archive so that build/plait runs on machines without them.
function(plait_static_library target header archive)
  find_path(${target}_INCLUDE ${header} REQUIRED)
  find_library(${target}_LIBRARY NAMES ${archive} REQUIRED)
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${${target}_LIBRARY}")
endfunction()
plait_static_library(plait_yaml yaml-cpp/yaml.h libyaml-cpp.a)
plait_static_library(plait_pcre2 pcre2.h libpcre2-8.a)
plait_static_library(plait_utf8proc utf8proc.h libutf8proc.a)
plait_static_library(plait_xxhash xxhash.h libxxhash.a)
target_compile_definitions(plait_pcre2 INTERFACE PCRE2_CODE_UNIT_WIDTH=8 PCRE2_STATIC)
target_compile_definitions(plait_utf8proc INTERFACE UTF8PROC_STATIC)
# nlohmann-json and CLI11 are headers only, in the compiler's own search path.
