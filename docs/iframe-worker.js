// The search runs in a worker, which a browser does not start for a page on disk. There, this stands
// in for one: the same script in a hidden frame. (Material would fetch such a script from a server;
// it leaves that alone where a file of this name is given.)
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      const script = frame.contentDocument.createElement("script");
      this.loaded = new Promise(done => { script.onload = done; });
      script.src = new URL(address, location);
      frame.contentDocument.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
