/* Browsers start no worker from the disk. There the search runs in a hidden frame, with a worker's names for what it calls. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(source) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...urls) => urls.forEach((url) => this.load(url));
      this.ready = this.load(source);
    }
    load(source) {
      const script = this.inside.document.createElement("script");
      script.src = new URL(source, location);
      this.inside.document.body.append(script);
      return new Promise((resolve) => (script.onload = resolve));
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
