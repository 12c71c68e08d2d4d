#include "bench/report_style.hpp"

namespace moecl::bench {

const char* const report_style = R"(
:root { color-scheme: light dark; --page: #fff; --card: #f5f6f8; --text: #1b1d20; --soft: #55595f; --rule: #d4d7dc;
  --good: #1f6b3a; --bad: #a8242a; --link: #1a559c;
  --c0: #1f5fa8; --c1: #b85c00; --c2: #2d7a45; --c3: #7d46a3; --c4: #b3282d; --c5: #14797a; --c6: #85680a; --c7: #b23a7c; --c8: #6a6e74 }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171a; --card: #1e2226; --text: #e7e9ec; --soft: #a9b0b8; --rule: #3a4047;
    --good: #6fcf8b; --bad: #f58a8d; --link: #86b7ff;
    --c0: #6ea8ff; --c1: #f0a050; --c2: #63c27d; --c3: #c39bec; --c4: #f0787c; --c5: #4fc4c4; --c6: #d9bd4a; --c7: #ee8fbf; --c8: #9aa1a9 } }
* { box-sizing: border-box }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 80rem; margin: 0 auto; padding: 1rem; color: var(--text); background: var(--page);
  overflow-wrap: anywhere; -webkit-text-size-adjust: 100% }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.25rem; margin: 0 } h3, h4 { font-size: 1rem; margin: 0 }
h3 { display: inline } h4 { font-weight: 600 } p { margin: .3rem 0 .8rem; color: var(--soft); max-width: 46rem }
a { color: var(--link) } nav a { display: inline-block; margin-right: 1.1rem; padding: .2rem 0 }
section { margin-top: 2.4rem } summary { cursor: pointer; padding: .35rem 0; border-top: 1px solid var(--rule) }
details > .groups { padding: .4rem 0 1.2rem }
.groups { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr)); gap: 1.4rem 2.5rem; align-items: start }
.groups > * { min-width: 0 }
.run { background: var(--card); border-radius: .5rem; padding: .9rem 1rem }
.warning { color: var(--bad); font-weight: 600 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: .5rem 0 .8rem } dd { margin: 0; text-align: right }
dt, .soft, thead th { color: var(--soft) }
ol { list-style: none; margin: .1rem 0 .6rem; padding: 0; font-size: .86rem } ol li { display: flex; justify-content: space-between; gap: 1rem }
ol b { white-space: nowrap } .findings { max-width: 46rem; padding-left: 1.2rem }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { padding: .12rem .35rem; text-align: right; font-weight: 400; white-space: nowrap }
th:first-child, th.series { text-align: left } th:first-child:not(.series) { padding-left: 0 }
th.long { min-width: 6.5rem; white-space: normal }
th:last-child, td:last-child { padding-right: 0 } td:first-child { padding-left: 0 }
tbody tr:first-child > *, tr.first > * { border-top: 1px solid var(--rule) } tbody th { vertical-align: top }
tbody th[colspan] { padding-top: .4rem; white-space: normal } thead th { font-size: 12px; vertical-align: bottom }
th small { font-size: 11px; color: var(--soft); margin-left: .5rem }
.track, th.axis { width: 100%; padding-left: .5rem; padding-right: .5rem } th.axis div { display: flex; justify-content: space-between }
svg { overflow: visible } svg.track { display: block; width: 100%; min-width: 3.5rem; height: 14px; padding: 0 }
svg text { font-size: 12px; fill: var(--soft) } .grid { stroke: var(--rule) }
svg.plot { display: block; height: 20rem; width: calc(100% - 4rem); margin: 2rem 1rem 3rem 3rem }
figure { margin: 0 } .range { stroke: var(--text); stroke-width: 1.5 }
polyline { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke }
.d1 { stroke-dasharray: 7 4 } .d2 { stroke-dasharray: 2 4 } .d3 { stroke-dasharray: 10 3 2 3 }
circle { stroke: var(--page) }
.legend { list-style: none; margin: .2rem 0 .8rem; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; font-size: 13px }
svg.key { width: .8rem; height: .8rem; margin-right: .35rem; vertical-align: -.05rem } svg.key:has(line) { width: 1.8rem }
svg.key line { stroke: var(--mark); stroke-width: 2.5 }
#kernels th.series svg { display: none } .good { color: var(--good) } .bad { color: var(--bad) }
rect, circle { fill: var(--mark) } polyline { stroke: var(--mark) }
.c0 { --mark: var(--c0) } .c1 { --mark: var(--c1) } .c2 { --mark: var(--c2) } .c3 { --mark: var(--c3) } .c4 { --mark: var(--c4) }
.c5 { --mark: var(--c5) } .c6 { --mark: var(--c6) } .c7 { --mark: var(--c7) } .c8 { --mark: var(--c8) }
@media (max-width: 30rem) { body { padding: .8rem } table { font-size: 12px } th, td { padding-left: .2rem; padding-right: .2rem } }
@media print { body { max-width: none } .group, figure, .run { break-inside: avoid } }
)";

}  // namespace moecl::bench
