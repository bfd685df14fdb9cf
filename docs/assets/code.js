/* A browser breaks a line after any hyphen, so also within --option: words with hyphens stay whole. */
for (const code of document.querySelectorAll(".md-typeset code")) {
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) {
    const parts = text.data.split(/(\S*-\S*)/).map((part, k) => {
      if (k % 2 === 0 || part.length > 30) return part;
      const whole = document.createElement("span");
      whole.style.whiteSpace = "nowrap";
      whole.textContent = part;
      return whole;
    });
    if (parts.length > 1) text.replaceWith(...parts);
  }
}
