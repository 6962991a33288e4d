// The symbols that have one color in equations and pictures of the whole site. See learn/notation.md.
const colored = {
  "\\Actor": "\\htmlClass{ink-actor}{\\mu}",
  "\\Critic": "\\htmlClass{ink-critic}{Q}",
  "\\Value": "\\htmlClass{ink-critic}{V}",
  "\\Policy": "\\htmlClass{ink-actor}{\\pi}",
  "\\Reward": "\\htmlClass{ink-reward}{r}",
  "\\Noise": "\\htmlClass{ink-noise}{\\varepsilon}",
  "\\Target": "\\htmlClass{ink-target}{y}",
  "\\Advantage": "\\htmlClass{ink-target}{A}",
  "\\clip": "\\operatorname{clip}",
};

document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".math")) {
    katex.render(element.textContent, element, {
      displayMode: element.classList.contains("display"),
      macros: { ...colored },
      throwOnError: false,
      trust: (context) => context.command === "\\htmlClass",
      strict: (code) => (code === "htmlExtension" ? "ignore" : "warn"),
    });
  }
});
