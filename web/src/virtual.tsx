// A long list in which only what is seen exists: rows of cells in the window's own scrolling.
import { observeWindowOffset, observeWindowRect, Virtualizer, windowScroll } from "@tanstack/virtual-core";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";

interface Props {
  count: number;
  minWidth: number; // of a cell; cells share the width that there is
  maxColumns?: number;
  height: (width: number) => (position: number) => number; // of cells of that width; a row is as high as its highest
  gap: number;
  label: string;
  render: (position: number, width: number, tabbable: boolean) => ComponentChildren;
  keyOf: (position: number) => string | number;
  onPosition?: (position: number) => void; // the cell that has the focus
}

/** A length of style.css: heights of cards stand there, beside what has to fit into them. */
export function pixels(name: string): number {
  return parseFloat(getComputedStyle(document.documentElement).getPropertyValue(name));
}

export function VirtualGrid(props: Props) {
  const { count, minWidth, gap } = props;
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [margin, setMargin] = useState(0);
  const [focus, setFocus] = useState(0);
  const wanted = useRef<number | null>(null); // the cell to focus when it exists
  const [, redraw] = useReducer((n: number) => n + 1, 0);

  const fit = Math.max(1, Math.floor((width + gap) / (minWidth + gap)));
  const across = Math.min(fit, props.maxColumns ?? fit);
  const cell = Math.floor((width - gap * (across - 1)) / across);
  const rows = Math.ceil(count / across);
  const heightOf = useMemo(() => props.height(Math.max(1, cell)), [cell, props.height]);
  const rowHeight = (row: number) => {
    let highest = 0;
    for (let position = row * across; position < Math.min(count, (row + 1) * across); position++) {
      highest = Math.max(highest, heightOf(position));
    }
    return highest + gap;
  };

  const options = {
    count: width ? rows : 0,
    getScrollElement: () => window,
    estimateSize: rowHeight,
    overscan: 3,
    scrollMargin: margin,
    observeElementRect: observeWindowRect,
    observeElementOffset: observeWindowOffset,
    scrollToFn: windowScroll,
    onChange: () => redraw(undefined as never),
  };
  const [virtualizer] = useState(() => new Virtualizer<Window, Element>(options));
  virtualizer.setOptions(options);
  useLayoutEffect(() => virtualizer._didMount(), []);
  useLayoutEffect(() => virtualizer._willUpdate());
  useLayoutEffect(() => virtualizer.measure(), [cell, across, props.height]);

  useLayoutEffect(() => {
    const measure = () => {
      if (!box.current) return;
      setWidth(box.current.clientWidth);
      setMargin(Math.round(box.current.getBoundingClientRect().top + window.scrollY));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current!);
    observer.observe(document.body);
    return () => observer.disconnect();
  }, []);

  const focusWanted = () => {
    if (wanted.current === null) return;
    const element = box.current?.querySelector<HTMLElement>(`[data-position="${wanted.current}"]`);
    const target = element?.querySelector<HTMLElement>("a, button");
    if (target) {
      wanted.current = null;
      target.focus({ preventScroll: true });
    }
  };
  useEffect(focusWanted);

  const items = virtualizer.getVirtualItems();
  const first = items.length ? items[0].index * across : 0;
  const last = items.length ? Math.min(count, (items[items.length - 1].index + 1) * across) : 0;
  const tabbable = focus >= first && focus < last ? focus : first;

  const move = (event: KeyboardEvent) => {
    const cellOfEvent = (event.target as Element).closest<HTMLElement>("[data-position]");
    if (!cellOfEvent || event.altKey || event.ctrlKey || event.metaKey) return;
    const from = wanted.current ?? Number(cellOfEvent.dataset.position); // keys may come faster than cells
    const page = Math.max(1, Math.floor(window.innerHeight / rowHeight(Math.floor(from / across))) - 1) * across;
    const steps: Record<string, number> = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: across,
      ArrowUp: -across,
      PageDown: page,
      PageUp: -page,
      Home: -from,
      End: count - 1 - from,
    };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const to = Math.min(count - 1, Math.max(0, from + step));
    wanted.current = to;
    setFocus(to);
    props.onPosition?.(to);
    virtualizer.scrollToIndex(Math.floor(to / across), { align: "auto" });
    focusWanted();
    redraw(undefined as never);
  };

  // A cell that is drawn already is handed over as it is, and the renderer skips it: scrolling costs new cells only.
  const drawn = useRef<{ key: string; props: Props; cells: Map<string, VNode> } | null>(null);
  const key = `${cell} ${margin} ${across}`;
  const before = drawn.current?.props === props && drawn.current.key === key ? drawn.current.cells : new Map<string, VNode>();
  const now = new Map<string, VNode>();
  drawn.current = { key, props, cells: now };
  const cells: VNode[] = [];
  for (const item of items) {
    for (let column = 0; column < across; column++) {
      const position = item.index * across + column;
      if (position >= count) break;
      const name = `${position} ${position === tabbable}`;
      const made = before.get(name) ?? (
        <div
          key={props.keyOf(position)}
          class="cell"
          role="listitem"
          aria-setsize={count}
          aria-posinset={position + 1}
          data-position={position}
          onFocusIn={() => {
            setFocus(position);
            props.onPosition?.(position);
          }}
          style={{
            width: `${cell}px`,
            height: `${item.size - gap}px`,
            transform: `translate(${column * (cell + gap)}px, ${item.start - margin}px)`,
          }}
        >
          {props.render(position, cell, position === tabbable)}
        </div>
      );
      now.set(name, made);
      cells.push(made);
    }
  }
  return (
    <div
      ref={box}
      class="virtual"
      role={count ? "list" : undefined}
      aria-label={count ? props.label : undefined}
      onKeyDown={move}
      style={{ height: `${Math.max(0, virtualizer.getTotalSize() - gap)}px` }}
    >
      {cells}
    </div>
  );
}
