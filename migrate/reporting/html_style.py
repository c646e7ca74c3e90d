"""The style of the HTML report, light and dark after the reader's own setting."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #f6f8fb; --card: #ffffff; --ink: #172033; --soft: #5b6780; --rule: #dfe5ee; --accent: #0b7285; --deep: #083344;
  --good: #18794e; --bad: #c62a2f; --warn: #a15c00;
  --good-bg: #e3f5ea; --bad-bg: #fdeaea; --warn-bg: #fff2dc; --note-bg: #edf1f7;
  --ins: #e6f6ec; --del: #fdeeee; --ins-mark: #b4e4c6; --del-mark: #f7c5c5;
  --k: #8430a8; --s: #1f7a3f; --c: #76809a; --n: #9a4d00; --f: #1659b5; --b: #0b7285;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0d1420; --card: #141d2c; --ink: #e3e9f4; --soft: #94a1ba; --rule: #263347; --accent: #4dc4d6; --deep: #0a2a3a;
    --good: #5fd39a; --bad: #ff8a8a; --warn: #f2b75c;
    --good-bg: #12352a; --bad-bg: #3f1d24; --warn-bg: #3a2c12; --note-bg: #1f2b3e;
    --ins: #10301f; --del: #37181f; --ins-mark: #1f6540; --del-mark: #7a2b38;
    --k: #d49bf0; --s: #8fd6a3; --c: #7c89a3; --n: #f0b878; --f: #86b9ff; --b: #63cbdb;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
code, .mono { font-family: ui-monospace, "SF Mono", "Cascadia Code", Menlo, "DejaVu Sans Mono", monospace; font-size: .87em; }
header { background: linear-gradient(115deg, #062a38, #0b5567 60%, #0f7d86); color: #f1fbfd; padding: 2.4rem 0 4.6rem; }
header small { letter-spacing: .12em; text-transform: uppercase; opacity: .75; }
header h1 { margin: .2rem 0 .5rem; font-size: 2rem; line-height: 1.2; overflow-wrap: anywhere; }
header p { margin: 0; opacity: .92; max-width: 62rem; overflow-wrap: anywhere; }
.wrap { max-width: 76rem; margin: 0 auto; padding: 0 1.4rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .9rem; margin-top: -3rem; }
.tile, section { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; box-shadow: 0 1px 3px #0a1a3010; }
.tile { padding: .9rem 1.1rem 1.1rem; }
.tile b { display: block; font-size: 1.9rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile b i { font-style: normal; font-size: 1.05rem; font-weight: 450; color: var(--soft); }
.tile span { color: var(--soft); }
.meter { height: 5px; border-radius: 3px; background: var(--rule); margin-top: .6rem; overflow: hidden; }
.meter i { display: block; height: 100%; background: var(--accent); }
section { margin: 1.2rem 0; padding: 1.2rem 1.4rem 1.4rem; overflow-x: auto; }
h2 { margin: 0 0 .8rem; font-size: 1.16rem; }
h3 { margin: 1.2rem 0 .4rem; font-size: 1rem; overflow-wrap: anywhere; }
h3:first-of-type { margin-top: 0; }
table.list { border-collapse: collapse; width: 100%; }
.list th { text-align: left; font-weight: 550; color: var(--soft); font-size: .84rem; padding: .25rem .8rem .35rem 0; }
.list td { border-top: 1px solid var(--rule); padding: .5rem .8rem .5rem 0; vertical-align: top; overflow-wrap: break-word; }
.findings { table-layout: fixed; } .findings th { width: 5.5rem; } .findings th:nth-child(4) { width: auto; }
.soft { color: var(--soft); }
.pill { display: inline-block; border-radius: 99px; padding: .05rem .6rem; font-size: .82rem; font-weight: 550;
  white-space: nowrap; background: var(--note-bg); color: var(--soft); }
.good { background: var(--good-bg); color: var(--good); } .bad { background: var(--bad-bg); color: var(--bad); }
.warn { background: var(--warn-bg); color: var(--warn); }
ol.chain { list-style: none; margin: 0; padding: 0 0 0 1.1rem; border-left: 2px solid var(--accent); }
ol.chain li { position: relative; padding: .1rem 0 .8rem; }
ol.chain li::before { content: ""; position: absolute; left: -1.5rem; top: .5rem; width: 11px; height: 11px; border-radius: 50%;
  background: var(--card); border: 3px solid var(--accent); }
ol.chain li:last-child { padding-bottom: 0; }
ol.chain code { overflow-wrap: anywhere; white-space: pre-wrap; }
.steps { display: flex; flex-wrap: wrap; gap: .5rem .5rem; align-items: stretch; }
.step { border: 1px solid var(--rule); border-radius: 9px; padding: .4rem .8rem; background: var(--paper); }
.step b { display: block; } .step span { color: var(--soft); font-size: .84rem; }
.arrow { align-self: center; color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { color: var(--soft); font-size: .86rem; }
svg { width: 100%; max-width: 30rem; height: auto; display: block; }
svg text { fill: var(--soft); font: 10px system-ui, sans-serif; } svg .axis { font-size: 11px; }
svg .ideal { stroke: var(--soft); stroke-dasharray: 4 4; } svg .grid { stroke: var(--rule); } svg .tick { stroke: var(--soft); }
svg .dots { fill: var(--accent); fill-opacity: .55; } svg .bar { fill: var(--accent); }
svg .curve { fill: none; stroke: var(--soft); stroke-width: 1.5; }
.speed { display: grid; grid-template-columns: 5.5rem 1fr 4.5rem; gap: .8rem; align-items: center; margin: .55rem 0; }
.speed em { font-style: normal; font-weight: 650; font-size: 1.1rem; text-align: right; font-variant-numeric: tabular-nums; }
.track { position: relative; height: 1.35rem; margin: 2px 0; }
.track i { position: absolute; inset: 0 auto 0 0; border-radius: 4px; min-width: 3px; }
.track i.before { background: var(--rule); } .track i.after { background: var(--accent); opacity: .45; }
.track span { position: relative; padding-left: .5rem; font-size: .83rem; line-height: 1.35rem; white-space: nowrap; }
details { border: 1px solid var(--rule); border-radius: 9px; margin: .7rem 0; overflow: hidden; }
summary { cursor: pointer; padding: .5rem .8rem; background: var(--paper); overflow-wrap: anywhere; }
table.diff { border-collapse: collapse; width: 100%; table-layout: fixed; font-size: .82rem; line-height: 1.45; }
.diff col.no { width: 3.2rem; }
.diff td { vertical-align: top; padding: 0 .5rem; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; }
.diff td.no { color: var(--soft); text-align: right; user-select: none; padding: 0 .5rem 0 0; }
.diff code { font-size: 1em; } .diff .none { background: var(--note-bg); }
.diff .ins { background: var(--ins); } .diff .del { background: var(--del); }
.diff .mark { border-radius: 3px; } .diff .ins .mark { background: var(--ins-mark); }
.diff .del .mark { background: var(--del-mark); }
.diff .gap td { text-align: center; color: var(--soft); background: var(--paper); }
.k { color: var(--k); } .s { color: var(--s); } .c { color: var(--c); font-style: italic; } .n { color: var(--n); }
.f { color: var(--f); } .b { color: var(--b); }
footer { color: var(--soft); padding: .6rem 0 3rem; font-size: .86rem; }
@media print { header { color: #000; background: none; } .tile, section { box-shadow: none; break-inside: avoid; } }
"""
