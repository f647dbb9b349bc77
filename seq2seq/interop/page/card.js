// The model's card: Markdown's headings, tables, code and paragraphs, as elements.

const make = (tag, ...children) => {
  const element = document.createElement(tag);
  element.append(...children);
  return element;
};

/** Make the elements of a card, without its metadata and its title. */
export function drawCard(text) {
  const body = text.replace(/\r/g, "").replace(/^---\n[^]*?\n---\n/, "").replace(/^\s*# .*\n/, "");
  const blocks = body.match(/```[^]*?\n```|(?:^|\n)\|[^]*?(?=\n(?!\|)|$)|#+ .*|[^\n]+(?:\n(?![\n#|`])[^\n]+)*/g) ?? [];
  return blocks.filter((block) => block.trim()).map(drawBlock);
}

function drawBlock(block) {
  if (block.startsWith("```")) return make("pre", block.replace(/^```.*\n|\n```$/g, ""));
  const [, heading] = /^#+ (.*)/.exec(block) ?? [];
  if (heading) return make("h3", ...inline(heading));
  if (block.trim().startsWith("|")) return drawTable(block.trim().split("\n"));
  return make("p", ...inline(block));
}

function drawTable([head, , ...rows]) {
  const row = (tag) => (line) => {
    const cells = line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/);
    return make("tr", ...cells.map((cell) => make(tag, ...inline(cell.trim()))));
  };
  return make("table", make("thead", row("th")(head)), make("tbody", ...rows.map(row("td"))));
}

function inline(text) {
  const parts = text.split(/`([^`]*)`/);
  return parts.map((part, i) => (i % 2 ? make("code", part.replaceAll("\\|", "|")) : part.replace(/\\(.)/g, "$1")));
}
