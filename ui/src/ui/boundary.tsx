import { Component, type ReactNode } from "react";

import { connection, subscribe } from "../api/connection";
import { forgetBroken } from "../lib/screens";
import { Button } from "./button";
import { Note } from "./panel";

interface Props {
  children: ReactNode;
}

/** Keeps the menu and the rest of the page when a screen breaks or cannot be loaded. Tries again when the server is back. */
export class Boundary extends Component<Props, { error: unknown }> {
  override state: { error: unknown } = { error: null };
  private stop: (() => void) | null = null;

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override componentDidMount(): void {
    this.stop = subscribe(() => {
      if (connection().lostAt === null && this.state.error !== null) this.again();
    });
  }

  override componentWillUnmount(): void {
    this.stop?.();
    if (this.state.error !== null) forgetBroken();
  }

  private readonly again = () => {
    forgetBroken();
    this.setState({ error: null });
  };

  override render(): ReactNode {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <Note tone="error">
        <strong>This screen could not be shown</strong>
        <div>It could not be loaded, or it has a fault. Your jobs are not affected.</div>
        <div>
          <code>{error instanceof Error ? error.message : String(error)}</code>
        </div>
        <div className="row">
          <Button small onClick={this.again}>
            Try again
          </Button>
          <Button small onClick={() => location.reload()}>
            Reload the page
          </Button>
        </div>
      </Note>
    );
  }
}
